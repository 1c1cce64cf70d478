package postgres_test

import (
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Where tasks only fail, no page has a completed task with whose receipt their flushes could be released.
func TestFlushesOfFailuresAloneAreReleased(t *testing.T) {
	s, pool := fresh(t)
	ctx := t.Context()
	for range 3 {
		ends := completed(running(t, s, newTasks(2, "q")))
		for i := range ends {
			ends[i].State, ends[i].Error = store.Discarded, "x"
		}
		if lost, err := s.Finish(ctx, ends); err != nil || len(lost) > 0 {
			t.Fatal(lost, err)
		}
	}
	lead, err := s.Lead(ctx, store.Candidate{ID: newID(), TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "no flush is left", func() bool {
		if _, err := s.Prune(ctx, lead.Term, store.Retention{}, 100); err != nil {
			t.Fatal(err)
		}
		due, err := s.Due(ctx, store.Retention{Completed: time.Millisecond}, "", 1)
		if err != nil || len(due.Tasks) > 0 {
			t.Fatal(due.Tasks, err)
		}
		var left int
		if err := pool.QueryRow(ctx, "select count(*) from tusk.outcome").Scan(&left); err != nil {
			t.Fatal(err)
		}
		return left == 0
	})
	if dead, err := s.List(ctx, store.Filter{Limit: 10}); err != nil || len(dead) != 6 {
		t.Errorf("%d tasks are left, want 6: %v", len(dead), err)
	}
}
