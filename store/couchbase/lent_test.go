package couchbase

import (
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/storetest"
)

// take makes a handle claim tasks of the queue q for a worker.
func (r *rig) take(s *Store, worker store.ID, limit int) []store.Task {
	r.Helper()
	tasks, err := s.Claim(r.ctx(), store.ClaimRequest{Worker: worker, Queues: []string{"q"}, Limit: limit,
		Token: store.NewToken()})
	r.must("claim", err)
	return tasks
}

// endAll makes a handle complete tasks that it has claimed.
func (r *rig) endAll(s *Store, tasks []store.Task) {
	r.Helper()
	var outcomes []store.Outcome
	for i := range tasks {
		outcomes = append(outcomes, store.Outcome{Task: &tasks[i], State: store.Completed, Attempt: tasks[i].Attempt})
	}
	if lost, err := s.Finish(r.ctx(), outcomes); err != nil || len(lost) > 0 {
		r.Fatalf("%d outcomes are refused: %v", len(lost), err)
	}
}

// A handle remembers a sheet only while it has to end one of its tasks, whatever others still run.
func TestASheetIsForgottenOnceAHandleHasEndedItsTasks(t *testing.T) {
	r := newRig(t, 1)
	other := storetest.NewID()
	r.beat(r.b, other, time.Hour)
	for range 20 {
		r.add(r.alike(10)...)
		mine, others := r.take(r.a, r.worker, 5), r.take(r.b, other, 5)
		if len(mine) != 5 || len(others) != 5 {
			t.Fatalf("%d and %d are claimed", len(mine), len(others))
		}
		r.endAll(r.a, mine[:2])
		if len(r.a.lent.docs) != 1 {
			t.Fatalf("%d documents are remembered while tasks run", len(r.a.lent.docs))
		}
		r.endAll(r.a, mine[2:])
		r.endAll(r.b, others)
	}
	for _, s := range []*Store{r.a, r.b} {
		if len(s.lent.open) > 0 || len(s.lent.docs) > 0 {
			t.Errorf("%d leases are open, and %d documents remembered", len(s.lent.open), len(s.lent.docs))
		}
	}
}
