package couchbase

import (
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Changing a page of tasks that was listed first costs one write for each task, and the pages that they fill.
func TestRequestsOfAChangeOfManyTasks(t *testing.T) {
	const many = 500
	r := newRig(t, 1)
	r.add(r.task("x", func(n *store.NewTask) { n.Priority = 3 })) // creates the lane
	for range many {
		r.add(r.task("x", nil))
	}
	tasks, err := r.b.List(r.ctx(), store.Filter{NoArgs: true, Limit: many})
	r.must("list", err)
	var ids []store.ID
	for i := range tasks {
		ids = append(ids, tasks[i].ID)
	}
	before := r.f.Requests()
	edited, err := r.b.Edit(r.ctx(), store.Edit{IDs: ids, Change: store.Change{Op: store.Reprioritize, Priority: 3}})
	r.must("edit", err)
	for _, e := range edited {
		if e.Result != store.Changed {
			t.Fatalf("%v", e)
		}
	}
	if n := r.f.Requests() - before; len(edited) != many || n > many+10*many/pageSize+20 {
		t.Errorf("the change of %d tasks took %d requests", len(edited), n)
	}
}

// Changing all tasks of shared documents costs one write for each document.
func TestRequestsOfAChangeOfSheets(t *testing.T) {
	for _, listed := range []bool{true, false} {
		r := newRig(t, 1)
		r.add(r.task("x", func(n *store.NewTask) { n.Priority = 3 })) // creates the lane
		tasks := r.alike(256)
		r.add(tasks...)
		var ids []store.ID
		for i := range tasks {
			ids = append(ids, tasks[i].ID)
		}
		most := int64(len(ids)/blockSize + 20)
		if listed {
			_, err := r.b.List(r.ctx(), store.Filter{NoArgs: true, Limit: len(ids)})
			r.must("list", err)
		} else {
			most += int64(2 * len(ids)) // each is read, in its own document and in the sheet
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
		if n := r.f.Requests() - before; n > most {
			t.Errorf("listed: %v; the change of %d tasks took %d requests", listed, len(ids), n)
		}
		claimed, err := r.a.Claim(r.ctx(), store.ClaimRequest{Worker: r.worker, Queues: []string{"q"}, Limit: 1000,
			Token: store.NewToken()})
		if err != nil || len(claimed) != len(ids)+1 || claimed[1].Priority != 3 {
			t.Errorf("%d are claimed, %v", len(claimed), err)
		}
	}
}

// What a handle has listed may be outdated, including when a change that is judged by it would write nothing.
func TestAListedTaskIsChangedAsItIs(t *testing.T) {
	r := newRig(t, 1)
	same := store.Change{Op: store.Reprioritize}
	for _, change := range []store.Change{same, {Op: store.Cancel}, {Op: store.Retry}} {
		r.add(r.task("x", nil))
		list, err := r.b.List(r.ctx(), store.Filter{NoArgs: true})
		r.must("list", err)
		r.claim()
		r.must("finish", r.finish(r.ctx(), r.outcome("x", store.Completed)))
		edited, err := r.b.Edit(r.ctx(), store.Edit{IDs: []store.ID{r.ids["x"]}, Change: change})
		r.must("edit", err)
		want := store.Refused
		if change.Op == store.Retry {
			want = store.Changed // it begins again
		}
		if len(list) == 0 || edited[0].Result != want {
			t.Errorf("%v of a task that has ended since: %v", change.Op, edited[0])
		}
	}
	if x := r.get(r.ids["x"]); x.State != store.Available || x.Attempt != 0 || time.Since(x.RunAt) > time.Minute {
		t.Errorf("%+v", x)
	}
}
