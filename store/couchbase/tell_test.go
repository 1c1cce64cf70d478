package couchbase

import (
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/storetest"
)

// TestTasksThatNeedEachOtherMayEndTogether cancels a task that waits for a child which needs it, in a process that
// takes every document for one that was left undone.
func TestTasksThatNeedEachOtherMayEndTogether(t *testing.T) {
	r := newRig(t, 1)
	parent := store.NewTask{ID: storetest.NewID(), Kind: "k", Queue: "q", Args: []byte("{}")}
	_, err := r.a.Enqueue(r.ctx(), []store.NewTask{parent})
	r.must("enqueue", err)
	tasks, err := r.a.Claim(r.ctx(), store.ClaimRequest{Worker: r.worker, Queues: []string{"q"}, Limit: 1,
		Token: store.NewToken()})
	if r.must("claim", err); len(tasks) != 1 {
		t.Fatalf("claimed %d tasks", len(tasks))
	}
	child := store.NewTask{ID: storetest.NewID(), Kind: "k", Queue: "q", Args: []byte("{}"),
		Needs: []store.Need{{Task: parent.ID}}}
	lost, err := r.a.Finish(r.ctx(), []store.Outcome{{Task: &tasks[0], State: store.Pending, Then: []store.NewTask{child},
		Needs: []store.Need{{Task: child.ID, OnFailure: store.ContinueOnFailure}}}})
	if r.must("finish", err); len(lost) > 0 {
		t.Fatalf("lost %v", lost)
	}
	r.b.patience = -time.Hour
	_, err = r.b.Edit(r.ctx(), store.Edit{IDs: []store.ID{parent.ID, child.ID}, Change: store.Change{Op: store.Cancel}})
	r.must("cancel", err)
	ended, err := r.a.List(r.ctx(), store.Filter{States: []store.State{store.Cancelled}})
	if r.must("list", err); len(ended) != 2 {
		t.Errorf("%d of 2 tasks are cancelled", len(ended))
	}
}

// TestTheFirstNeedThatHasFailedIsTheReason cancels tasks that need others, which are cancelled at the same time, and a
// task that does not exist.
func TestTheFirstNeedThatHasFailedIsTheReason(t *testing.T) {
	r := newRig(t, 1)
	var parents, children []store.NewTask
	for range 20 {
		parent := r.task("parent", needs(storetest.NewID()))
		parents = append(parents, parent)
		children = append(children, r.task("child", needs(parent.ID, storetest.NewID())))
	}
	r.add(append(parents, children...)...)
	did, err := r.b.Admit(r.ctx(), r.term, 100)
	if r.must("admit", err); did.Cancelled != 40 {
		t.Fatalf("%d of 40 tasks are cancelled", did.Cancelled)
	}
	for i, n := range children {
		if want := "needs task " + parents[i].ID.String() + ", which is cancelled"; r.get(n.ID).Reason != want {
			t.Errorf("a child is cancelled since it %s; want: %s", r.get(n.ID).Reason, want)
		}
	}
}
