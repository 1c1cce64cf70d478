package couchbase

import (
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// A handle forgets minutes that it has written, whether it leads or not. They stay in the database.
func TestAHandleForgetsStatisticsThatAreWritten(t *testing.T) {
	const minutes = store.MaxPage + 300 // they are read in pages
	r := newRig(t, 1)
	begin := time.Now().Add(-minutes * time.Minute)
	for i := range minutes {
		r.must("account", r.a.account(r.ctx(), []*rules.End{{Task: &rules.Row{Task: store.Task{Queue: "q", Kind: "k"}},
			Outcome: &store.Outcome{State: store.Completed},
			Attempt: store.Attempt{EndedAt: begin.Add(time.Duration(i) * time.Minute), Outcome: store.Completed}}}))
	}
	r.must("write", r.a.writeSums(r.ctx()))
	r.a.sums.mu.Lock()
	kept := len(r.a.sums.minutes)
	r.a.sums.mu.Unlock()
	if kept > keptMinutes+1 {
		t.Errorf("it keeps %d minutes", kept)
	}
	// An attempt that ends late is added to its minute.
	r.must("account", r.a.account(r.ctx(), []*rules.End{{Task: &rules.Row{Task: store.Task{Queue: "q", Kind: "k"}},
		Outcome: &store.Outcome{State: store.Completed},
		Attempt: store.Attempt{EndedAt: begin.Add(time.Minute), Outcome: store.Completed}}}))
	r.must("write", r.a.writeSums(r.ctx()))
	stats, err := r.b.Stats(r.ctx(), store.StatsFilter{From: begin.Add(-time.Minute)})
	r.must("stats", err)
	sum := int64(0)
	for _, s := range stats {
		sum += s.Completed
	}
	if sum != minutes+1 {
		t.Errorf("%d of %d are counted", sum, minutes+1)
	}
}
