package couchbase

import (
	"strconv"
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

// A handle that remembers too many documents forgets them, but still removes the tokens of ended leases from the
// worker's document. Once the worker has left, nothing is open.
func TestTokensAreRemovedThoughDocumentsWereForgotten(t *testing.T) {
	r := newRig(t, 1)
	r.add(r.some(10)...)
	var held []store.Task
	for range 5 {
		held = append(held, r.take(r.a, r.worker, 2)...)
	}
	for i := range mostLent {
		r.a.lent.docs[ref{inTask, strconv.Itoa(i)}] = &doc{}
	}
	r.endAll(r.a, held)
	if n := len(r.a.lent.docs); n > len(held) {
		t.Errorf("%d documents are remembered", n)
	}
	for range 3 {
		r.add(r.task("x", nil))
		r.endAll(r.a, r.take(r.a, r.worker, 1))
	}
	d, err := r.b.read(r.ctx(), workerRef(r.worker.String()))
	r.must("read", err)
	if n := len(d.worker().Leases); n > 1 {
		t.Errorf("the worker's document has %d tokens, and one may be open", n)
	}
	r.add(r.some(2)...)
	r.take(r.a, r.worker, 2)
	r.beat(r.a, r.worker, 0)
	if len(r.a.lent.open)+len(r.a.lent.ended) > 0 {
		t.Errorf("%d leases are open, and %d ended", len(r.a.lent.open), len(r.a.lent.ended))
	}
}
