package mysql_test

import (
	"context"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/mysql/mysqltest"
)

// never is a task that does not come.
type never struct{}

func (never) Kind() string { return "never" }

// A worker that leads and has no tasks sends few statements.
func TestAnIdleLeaderAsksLittle(t *testing.T) {
	server := mysqltest.Start(t)
	dsn := server.Database(t)
	migrate(t, dsn)
	s, other := open(t, dsn), open(t, dsn)
	client, err := tusk.NewClient(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	mux := tusk.NewMux()
	tusk.HandleFunc(mux, func(context.Context, never) error { return nil })
	w, err := tusk.NewWorker(client, mux, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	defer func() { stop(); <-ended }()
	for until := time.Now().Add(10 * time.Second); number(t, other, "select term from tusk_leader where one = 1") == 0; {
		if time.Now().After(until) {
			t.Fatal("nobody leads")
		}
		time.Sleep(100 * time.Millisecond)
	}
	time.Sleep(6 * time.Second) // until the first housekeeping is over
	const lasts = 10
	before := statements(t, other)
	time.Sleep(lasts * time.Second)
	if n := statements(t, other) - before - 1; n > 10*lasts {
		t.Errorf("%.1f statements a second, want at most 10", float64(n)/lasts)
	}
}

// While there is something to add up, an overseer says so, and no longer once it is added up.
func TestHousekeepingIsDueWhileSumsWait(t *testing.T) {
	s := fresh(t)
	term := lead(t, s)
	moved := func() int64 {
		t.Helper()
		c, err := s.Oversee(t.Context(), store.Candidate{Term: term})
		if err != nil || c.Moved == 0 {
			t.Fatal(c, err)
		}
		return c.Moved
	}
	maintain := func() {
		t.Helper()
		if err := s.Maintain(t.Context(), term); err != nil {
			t.Fatal(err)
		}
	}
	maintain()
	first := moved()
	if moved() != first {
		t.Error("it is due though no task has come")
	}
	tx, err := s.DB().Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	in, err := s.Tx(tx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := in.Enqueue(t.Context(), newTasks(1, "q")); err != nil {
		t.Fatal(err)
	}
	enqueue(t, s, newTasks(1, "q")...)
	second := moved()
	if second == first {
		t.Error("a task has come, and it is not due")
	}
	maintain()
	if moved() != second {
		t.Error("it is due though everything is added up")
	}
	if err := tx.Commit(); err != nil { // its sums are older than those that were added up
		t.Fatal(err)
	}
	if moved() == second {
		t.Error("a transaction that began earlier has committed, and it is not due")
	}
}
