package couchbase

import (
	"errors"
	"strings"
	"testing"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// large makes tasks of 250 KiB each.
func (r *rig) large(n int, change func(n *store.NewTask)) (tasks []store.NewTask) {
	for range n {
		one := r.task("large", change)
		one.Args = []byte(`"` + strings.Repeat("x", 250<<10) + `"`)
		tasks = append(tasks, one)
	}
	return tasks
}

// Tasks that need a stored one may together be larger than a document can be.
func TestManyLargeTasksThatNeedAStoredOne(t *testing.T) {
	r := newRig(t, 1)
	parent := r.task("parent", nil)
	r.add(parent)
	tasks := r.large(90, needs(parent.ID))
	did, err := r.a.Enqueue(r.ctx(), tasks)
	r.must("enqueue", err)
	if len(did) != len(tasks) {
		t.Errorf("%d of %d are stored", len(did), len(tasks))
	}
	r.drain()
	all, err := r.b.List(r.ctx(), store.Filter{States: []store.State{store.Completed}, NoArgs: true})
	r.must("list", err)
	if len(all) != len(tasks)+1 {
		t.Errorf("%d of %d tasks have run", len(all), len(tasks)+1)
	}
}

// A unit that does not fit into one document is refused before any of it is written, and the error says so.
func TestAUnitThatIsTooLarge(t *testing.T) {
	r := newRig(t, 1)
	r.add(r.task("x", keyed("k", store.Skip)))
	r.claim()
	tasks := r.large(90, nil)
	tasks[0].Key, tasks[0].OnConflict = "k", store.Rerun
	refused := func(what string, err error, stored bool) {
		t.Helper()
		if !errors.Is(err, store.ErrUnstorable) || errors.Is(err, store.ErrNotCommitted) == stored ||
			!strings.Contains(err.Error(), "20 MiB") {
			t.Errorf("%s: %v", what, err)
		}
		for _, d := range []ref{taskRef(r.ids["x"]), keyRef(rules.KeyName{Queue: "q", Key: "k"}), recordRef("kind", "r")} {
			if is, err := r.b.read(r.ctx(), d); err != nil || is != nil && (is.header().Pin != nil || is.header().Todo != 0) {
				t.Errorf("%s: %s is left: %v", what, is.raw, err)
			}
		}
	}
	_, _, err := r.a.PutRecord(r.ctx(), store.PutRecord{Record: store.Record{Kind: "kind", Name: "r", Body: []byte("1")},
		Tasks: tasks})
	refused("put record", err, false)
	if r.find("r") != nil {
		t.Error("the record is stored")
	}
	o := r.outcome("x", store.Completed)
	o.Then = tasks[1:]
	_, err = r.a.Finish(r.ctx(), []store.Outcome{o})
	refused("finish", err, true) // if there are several outcomes, others may be stored
	o.Then = nil
	r.must("finish", r.finish(r.ctx(), o))
	r.drain()
	r.once("x", true)
}
