package mysql_test

import (
	"context"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/mysql"
	"github.com/tuskqueue/tusk/store/mysql/mysqltest"
)

// A program that only enqueues in transactions of its own may have no other connection than that of the transaction,
// from its first enqueue on.
func TestEnqueueTxNeedsNoOtherConnection(t *testing.T) {
	dsn := mysqltest.Database(t)
	migrate(t, dsn)
	admin, err := tusk.NewClient(open(t, dsn), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := admin.SetLimits(t.Context(), "serial", tusk.Limits{Concurrency: 1}); err != nil {
		t.Fatal(err)
	}
	lone := plain(t, dsn)
	own, err := mysql.New(t.Context(), lone, mysql.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { own.Close() })
	for name, s := range map[string]*mysql.Store{
		"a pool of the program's": own, "a pool of the engine's": open(t, dsn),
	} {
		s.DB().SetMaxOpenConns(1)
		client, err := tusk.NewClient(s, nil)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			tx, err := s.DB().BeginTx(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			r, err := client.EnqueueTx(ctx, tx, tusk.RawArgs{Name: "k"}, &tusk.Options{Queue: "serial"})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if took := time.Since(began); took > 900*time.Millisecond {
				t.Errorf("%s: it took %v", name, took)
			}
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			task, err := admin.Get(ctx, r.ID)
			if err != nil || task.State != store.Pending || !task.Turn {
				t.Errorf("%s: %v with a turn: %v, %v; want it to wait for one", name, task.State, task.Turn, err)
			}
		}
	}
}
