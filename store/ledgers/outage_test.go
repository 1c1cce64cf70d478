package ledgers_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres/pgtest"
)

// A standby that is promoted while its primary runs has all ledgers, too. Open stores continue with
// the primary's ledgers. A new one uses none of them. All report the problem.
func TestACopyThatWasNotFencedIsNotUsed(t *testing.T) {
	all, _ := servers(t, 1)
	ctx := context.Background()
	if err := divide(2, all[0].DSN); err != nil {
		t.Fatal(err)
	}
	standby, err := all[0].Standby()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(standby.Stop)
	s := open(t, all[0].DSN, standby.DSN)
	add(t, s, newTask(nil))
	if err := standby.Exec(ctx, "select pg_promote()"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Check(ctx); err == nil || !strings.Contains(err.Error(), "rename the schema where it is a copy") {
		t.Errorf("check: %v", err)
	}
	later := add(t, s, newTask(nil))[0].ID
	if got := stateOf(t, open(t, all[0].DSN), later); got != store.Available {
		t.Errorf("a task of a process that goes on is %v on the old server", got)
	}
	_, in := beginFor(t, s, standby.DSN)
	if _, err := in.Enqueue(ctx, []store.NewTask{newTask(nil)}); !errors.Is(err, store.ErrUnsupported) {
		t.Errorf("a task of a transaction beside the copy would be lost: %v", err)
	}
	fresh := open(t, all[0].DSN, standby.DSN)
	_, err = fresh.Enqueue(ctx, []store.NewTask{newTask(nil)})
	if !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, store.ErrNotCommitted) {
		t.Errorf("a process that starts now: %v", err)
	}
	if err := s.Fence(ctx, 0); err == nil {
		t.Error("one of two was fenced")
	}
}

// A prepared transaction that was left behind is in flight: its tasks appear when it ends, others
// do not wait for it, and no ledger can be fenced before.
func TestAPreparedTransactionIsInFlight(t *testing.T) {
	server, err := pgtest.Start("max_prepared_transactions=4")
	if err != nil {
		t.Skipf("no PostgreSQL server of the test's own: %v", err)
	}
	t.Cleanup(server.Stop)
	ctx := context.Background()
	if err := divide(2, server.DSN); err != nil {
		t.Fatal(err)
	}
	s := open(t, server.DSN)
	tx, in := beginFor(t, s, server.DSN)
	var left []store.NewTask
	for i := range 8 {
		left = append(left, keyedInto(s, i%2, nil))
	}
	add(t, in, left...)
	if _, err := tx.Conn().Exec(ctx, "prepare transaction 'left behind'"); err != nil {
		t.Fatal(err)
	}
	w := worker(t, s)
	add(t, s, newTask(nil), newTask(nil))
	if got := claim(t, s, w, 20); len(got) != 2 {
		t.Errorf("claimed %d tasks, want the 2 that are committed", len(got))
	}
	within, cancel := context.WithTimeout(ctx, 1500*time.Millisecond)
	defer cancel()
	if err := s.Fence(within, 0); err == nil {
		t.Error("a ledger was fenced with a transaction in flight")
	}
	if _, err := tx.Conn().Exec(ctx, "commit prepared 'left behind'"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its tasks are claimed", func() bool {
		left = left[:len(left)-len(claim(t, s, w, 20))]
		return len(left) == 0
	})
	if err := s.Fence(ctx, 0, 1); err != nil {
		t.Errorf("with nothing in flight: %v", err)
	}
}

// beginFor begins a user's transaction on a new connection, which is closed at the end of the test.
func beginFor(t *testing.T, s store.Transactor, dsn string) (pgx.Tx, store.Tx) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(context.Background()) })
	tx, err := c.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	in, err := s.Tx(tx)
	if err != nil {
		t.Fatal(err)
	}
	return tx, in
}
