package postgres_test

import (
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Several statements of a call are sent together: none waits for the answer of another.
func TestACallOfSeveralStatementsIsOneTrip(t *testing.T) {
	s, _ := fresh(t)
	ctx := t.Context()
	term, w := lead(t, s), startWorker(t, s)
	goRound(t, s, w, 3)
	tasks := newTasks(3, "q")
	if _, err := s.Enqueue(ctx, tasks); err != nil {
		t.Fatal(err)
	}
	ids := []store.ID{tasks[0].ID, tasks[1].ID}
	cursor, err := s.Follow(ctx, true)
	if err != nil {
		t.Fatal(err)
	}
	for what, call := range map[string]struct {
		trips int64
		do    func() error
	}{
		"tasks by id":  {1, func() error { _, err := s.List(ctx, store.Filter{IDs: ids}); return err }},
		"counts":       {1, func() error { _, err := s.Count(ctx); return err }},
		"ends":         {1, func() error { _, err := s.Ended(ctx, cursor, 10); return err }},
		"turns":        {1, func() error { _, err := s.Turns(ctx, term, 10, 10); return err }},
		"a grant":      {1, func() error { _, err := s.Grant(ctx, term, ids); return err }},
		"an admission": {1, func() error { _, err := s.Admit(ctx, term, 10); return err }},
		"a rescue":     {1, func() error { _, err := s.Rescue(ctx, term, 10); return err }},
		"pruning": {1, func() error {
			_, err := s.Prune(ctx, term, store.Retention{Completed: time.Hour, Stats: time.Hour}, 10)
			return err
		}},
		"an edit": {2, func() error {
			_, err := s.Edit(ctx, store.Edit{IDs: ids, Change: store.Change{Op: store.Reprioritize, Priority: 1}})
			return err
		}},
	} {
		before := s.Trips()
		if err := call.do(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if n := s.Trips() - before; n != call.trips {
			t.Errorf("%s took %d trips, want %d", what, n, call.trips)
		}
	}
}
