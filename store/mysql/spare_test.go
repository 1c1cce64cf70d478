package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/mysql"
	"github.com/tuskqueue/tusk/store/mysql/mysqltest"
)

// crowded opens a handle through a pool of two connections. crowd takes both.
func crowded(t testing.TB) (s store.Store, crowd func()) {
	dsn := mysqltest.Database(t)
	migrate(t, dsn)
	db := plain(t, dsn)
	db.SetMaxOpenConns(2)
	own, err := mysql.New(t.Context(), db, mysql.Options{Spare: connector(t, dsn, nil)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { own.Close() })
	return own, func() { hold(t, db) }
}

// hold begins as many transactions as a pool has connections.
func hold(t testing.TB, db *sql.DB) {
	t.Helper()
	for range db.Stats().MaxOpenConnections {
		tx, err := db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { tx.Rollback() })
	}
}

func TestAStoreThatWasOpenedHasSpareConnections(t *testing.T) {
	s := fresh(t)
	worker := startWorker(t, s)
	s.DB().SetMaxOpenConns(2)
	enqueue(t, s, newTasks(2, "q")...)
	hold(t, s.DB())
	finish(t, s, claim(t, s, worker, 2))
	if !s.Witnesses() {
		t.Error("the death of this process would not be seen")
	}
}

func TestATransactionMayHaveTheOnlyConnectionWhereThereAreSpareOnes(t *testing.T) {
	dsn := mysqltest.Database(t)
	migrate(t, dsn)
	s, err := mysql.Open(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	s.DB().SetMaxOpenConns(1)
	_, u := begin(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := u.Enqueue(ctx, newTasks(1, "q")); err != nil {
		t.Error(err)
	}
}

func TestATransactionThatHasTheOnlyConnectionIsRefused(t *testing.T) {
	dsn := mysqltest.Database(t)
	migrate(t, dsn)
	db := plain(t, dsn)
	s, err := mysql.New(t.Context(), db, mysql.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	db.SetMaxOpenConns(1)
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	_, err = s.Tx(tx)
	if !errors.Is(err, store.ErrUnsupported) || !strings.Contains(err.Error(), "SetMaxOpenConns") {
		t.Errorf("%v, want an error that names the fix", err)
	}
}

func TestALimitedPoolWithoutSpareConnectionsIsSaid(t *testing.T) {
	dsn := mysqltest.Database(t)
	migrate(t, dsn)
	for limit, want := range map[int]bool{0: false, 8: true} {
		db := plain(t, dsn)
		db.SetMaxOpenConns(limit)
		s, err := mysql.New(t.Context(), db, mysql.Options{})
		if err != nil {
			t.Fatal(err)
		}
		warnings, err := s.Check(t.Context())
		if said := strings.Contains(strings.Join(warnings, " "), "mysql.Options.Spare"); err != nil || said != want {
			t.Errorf("at most %d connections: %q, %v", limit, warnings, err)
		}
		s.Close()
	}
}

// Migrations hold a lock on one connection while they work on another. With a pool of one connection they fail instead
// of waiting forever, and the leader's chores go on.
func TestAPoolOfOneConnectionCannotMigrate(t *testing.T) {
	dsn := mysqltest.Database(t)
	one := newOn(t, dsn, nil)
	one.DB().SetMaxOpenConns(1)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := one.Migrate(ctx, -1); !errors.Is(err, store.ErrUnsupported) ||
		!strings.Contains(err.Error(), "SetMaxOpenConns") {
		t.Errorf("migrate: %v", err)
	}
	migrate(t, dsn)
	if err := one.Maintain(ctx, lead(t, one)); err != nil {
		t.Errorf("maintain: %v", err)
	}
	if ctx.Err() != nil {
		t.Error("it has waited for a connection")
	}
}
