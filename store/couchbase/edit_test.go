package couchbase

import (
	"testing"

	"github.com/tuskqueue/tusk/store"
)

// Changing tasks costs one read and one write for each task, and the pages that they fill.
func TestRequestsOfAChangeOfManyTasks(t *testing.T) {
	const many = 500
	r := newRig(t, 1)
	r.add(r.task("x", func(n *store.NewTask) { n.Priority = 3 })) // creates the lane
	var ids []store.ID
	for range many {
		n := r.task("x", nil)
		r.add(n)
		ids = append(ids, n.ID)
	}
	before := r.f.Requests()
	edited, err := r.b.Edit(r.ctx(), store.Edit{IDs: ids, Change: store.Change{Op: store.Reprioritize, Priority: 3}})
	r.must("edit", err)
	for _, e := range edited {
		if e.Result != store.Changed {
			t.Fatalf("%v", e)
		}
	}
	if n := r.f.Requests() - before; len(edited) != many || n > 2*many+10*many/pageSize+20 {
		t.Errorf("the change of %d tasks took %d requests", len(edited), n)
	}
}

// Changing all tasks of shared documents costs three reads and one write for each document.
func TestRequestsOfAChangeOfSheets(t *testing.T) {
	r := newRig(t, 1)
	r.add(r.task("x", func(n *store.NewTask) { n.Priority = 3 })) // creates the lane
	tasks := r.alike(256)
	r.add(tasks...)
	var ids []store.ID
	for i := range tasks {
		ids = append(ids, tasks[i].ID)
	}
	before := r.f.Requests()
	change := store.Change{Op: store.Reprioritize, Priority: 3}
	edited, err := r.b.Edit(r.ctx(), store.Edit{IDs: ids, Change: change})
	r.must("edit", err)
	for _, e := range edited {
		if e.Result != store.Changed {
			t.Fatalf("%v", e)
		}
	}
	if n := r.f.Requests() - before; n > int64(4*len(ids)/blockSize+20) {
		t.Errorf("the change of %d tasks took %d requests", len(ids), n)
	}
	claimed, err := r.a.Claim(r.ctx(), store.ClaimRequest{Worker: r.worker, Queues: []string{"q"}, Limit: 1000,
		Token: store.NewToken()})
	if err != nil || len(claimed) != len(ids)+1 || claimed[1].Priority != 3 {
		t.Errorf("%d are claimed, %v", len(claimed), err)
	}
}
