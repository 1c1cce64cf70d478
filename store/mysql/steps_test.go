package mysql

import (
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// TestABurstIsNotReadThroughToFindItsGroups fills a line that is empty according to the server's statistics.
func TestABurstIsNotReadThroughToFindItsGroups(t *testing.T) {
	ctx := t.Context()
	s, _ := queueOf(t, 0, 0)
	lead, err := s.Lead(ctx, store.Candidate{ID: store.ID{1}, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.db.Exec("analyze table tusk_line"); err != nil {
		t.Fatal(err)
	}
	for call := range 10 {
		tasks := make([]store.NewTask, 1000)
		for i := range tasks {
			tasks[i] = store.NewTask{ID: store.ID{2, byte(call), byte(i >> 8), byte(i)}, Kind: "k", Queue: "q", Tenant: "heavy",
				Turn: true, Args: []byte("{}")}
		}
		if _, err := s.Enqueue(ctx, tasks); err != nil {
			t.Fatal(err)
		}
	}
	before, err := s.steps(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("by the statistics of an empty line the server steps: %v", before)
	for range 2 { // the first look finds out that many wait
		if all, err := s.Turns(ctx, lead.Term, 10, 10); err != nil || len(all) != 1 || len(all[0].Waiting) != 10 {
			t.Fatal(all, err)
		}
	}
	if after, err := s.steps(ctx); err != nil || !after {
		t.Errorf("a look reads all who wait to find out that they are of one group: %v", err)
	}
}
