package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// A long open transaction keeps the dead row of every lease that ends.
func TestLeasesThatEndedCostNothingWhileATransactionIsOpen(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	w := startWorker(t, s)
	if _, err := s.Lead(ctx, store.Candidate{ID: w, TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	const leases = 3000
	if _, err := s.Enqueue(ctx, newTasks(leases+6, "q")); err != nil {
		t.Fatal(err)
	}
	early, err := pool.Acquire(ctx) // its plans are made while the tables are almost empty
	if err != nil {
		t.Fatal(err)
	}
	defer early.Release()
	before := pagesOf(t, s, early, w)
	beginWriting(t, pool)
	for range leases {
		if _, err := s.Finish(ctx, completed([]store.Task{claimNext(t, s, w)})); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := pool.Exec(ctx, "vacuum analyze tusk.lease"); err != nil { // as autovacuum does
		t.Fatal(err)
	}
	late, err := pool.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer late.Release()
	for plans, c := range map[string]*pgxpool.Conn{"early": early, "late": late} {
		for what, pages := range pagesOf(t, s, c, w) {
			t.Logf("%s, plans made %s: %d pages, %d before", what, plans, pages, before[what])
			if pages > before[what]+leases/100 {
				t.Errorf("%s, plans made %s: touches %d pages after %d leases ended, %d before", what, plans, pages, leases,
					before[what])
			}
		}
	}
}

// pagesOf returns how many pages some calls touch, all of which are rolled back.
func pagesOf(t *testing.T, s *postgres.Store, c *pgxpool.Conn, w store.ID) map[string]int {
	t.Helper()
	ctx := context.Background()
	a, b := claimNext(t, s, w), claimNext(t, s, w)
	tasks := []store.Task{a, b}
	calls := map[string]struct {
		text string
		args []any
	}{
		"a flush of two leases": {
			`tusk_fn.finish(row(array[$1, $2]::uuid[], array[tusk_fn.lane_of('q', 0), tusk_fn.lane_of('q', 0)], '{0,1}', '{1,1}',
			'{0,0}', array[$3, $4]::uuid[], null, '{1,2}', null, '')::tusk_fn.flush, '{}', '{}')`,
			[]any{[16]byte(a.Lease), [16]byte(b.Lease), [16]byte(a.ID), [16]byte(b.ID)}},
		"a heartbeat":             {"tusk_fn.beat($1, '{}', 3600000000, 1000000)", []any{[16]byte(w)}},
		"a look for dead workers": {"(" + s.Statement("rescue") + ") x", []any{1000, false}},
		"pruning":                 {"(" + s.Statement("flushes_due") + ") x", []any{3_600_000_000}},
	}
	pages := map[string]int{}
	for what, call := range calls {
		pages[what] = 1 << 30
		for range 3 { // the first round reads catalogs and makes plans
			tx, err := c.Begin(ctx)
			if err != nil {
				t.Fatal(err)
			}
			n, _ := touched(t, tx, "select * from "+call.text, call.args...)
			pages[what] = min(pages[what], n)
			if err := tx.Rollback(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := s.Finish(ctx, completed(tasks)); err != nil {
		t.Fatal(err)
	}
	return pages
}

func claimNext(t *testing.T, s *postgres.Store, worker store.ID) store.Task {
	t.Helper()
	return claimSome(t, s, worker, 1)[0]
}
