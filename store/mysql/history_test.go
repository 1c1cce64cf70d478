package mysql_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// If a receiver is dead, the database keeps at most store.MostEnds ends for it, and tells it later how many it has
// missed. If nobody follows, no ends are kept.
func TestEndsThatNobodyAskedForAreDropped(t *testing.T) {
	s := fresh(t)
	worker := startWorker(t, s)
	l, err := s.Lead(t.Context(), store.Candidate{ID: store.ID{1}, TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	complete := func() {
		t.Helper()
		if _, err := s.Enqueue(t.Context(), newTasks(3, "q")); err != nil {
			t.Fatal(err)
		}
		tasks, err := s.Claim(t.Context(), store.ClaimRequest{Worker: worker, Queues: []string{"q"}, Limit: 3,
			Token: store.NewToken()})
		if err != nil || len(tasks) != 3 {
			t.Fatal(len(tasks), err)
		}
		var out []store.Outcome
		for i := range tasks {
			out = append(out, store.Outcome{Task: &tasks[i], State: store.Completed})
		}
		if lost, err := s.Finish(t.Context(), out); err != nil || len(lost) > 0 {
			t.Fatal(lost, err)
		}
		if err := s.Maintain(t.Context(), l.Term); err != nil {
			t.Fatal(err)
		}
	}
	complete()
	if n := number(t, s, "select count(*) from tusk_end"); n != 0 {
		t.Errorf("%d rows of ends are kept for nobody", n)
	}
	cursor, err := s.Follow(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	complete()
	exec(t, s, fmt.Sprintf("update tusk_leader set term = term + %d where one = 4", store.MostEnds))
	complete()
	told, err := s.Ended(t.Context(), cursor, 10)
	if err != nil || len(told.Ends) != 3 || told.Missed != store.MostEnds+3 {
		t.Errorf("%d ends, %d missed, %v; want 3 and %d", len(told.Ends), told.Missed, err, store.MostEnds+3)
	}
	if _, err := s.Follow(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if n := number(t, s, "select count(*) from tusk_end"); n != 0 {
		t.Errorf("%d rows of ends are left", n)
	}
}
