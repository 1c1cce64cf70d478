package couchbase

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/couchbase/gocb/v2"
	"github.com/couchbase/gocbcore/v10/memd"

	"github.com/tuskqueue/tusk/internal/cbfake"
	"github.com/tuskqueue/tusk/store"
)

// made returns the documents of tasks and keys that a call creates.
func (r *rig) made(call func()) (all []ref) {
	r.Helper()
	var mu sync.Mutex
	r.f.Set(cbfake.Faults{Request: func(code memd.CmdCode, key string) cbfake.Spoil {
		if code == memd.CmdAdd && !strings.HasPrefix(key, "c|") && !strings.HasPrefix(key, "p|") {
			mu.Lock()
			defer mu.Unlock()
			in := ref{inTask, key}
			if strings.Contains(key, "|") {
				in.C = inKey
			}
			all = append(all, in)
		}
		return cbfake.Sound
	}})
	call()
	r.f.Set(cbfake.Faults{})
	return all
}

// If a request to create a document arrives after the task was created and deleted, it creates nothing. A storm found
// that tasks of a sheet were archived twice: all of them had moved out of it, and the requests that created their
// documents had been repeated and arrived after they had been archived.
func TestARequestThatMakesADocumentAndArrivesLateMakesNothing(t *testing.T) {
	enqueue := func(r *rig, tasks ...store.NewTask) func() {
		return func() {
			_, err := r.a.Enqueue(r.ctx(), tasks)
			r.must("enqueue", err)
		}
	}
	for name, call := range map[string]func(r *rig) func(){
		"plain": func(r *rig) func() { return enqueue(r, r.task("s0", nil)) },
		"keyed": func(r *rig) func() { return enqueue(r, r.task("s0", keyed("k", store.Skip))) },
		"keyed, and needs what is stored": func(r *rig) func() {
			r.add(r.task("s0", nil))
			return enqueue(r, r.task("s1", func(n *store.NewTask) {
				n.Key, n.Needs = "k", []store.Need{{Task: r.ids["s0"]}}
			}))
		},
		"keyed, with a record": func(r *rig) func() {
			r.record("r")
			n := r.task("s0", keyed("k", store.Skip))
			return func() {
				_, _, err := r.a.PutRecord(r.ctx(), store.PutRecord{Record: r.note(), Tasks: []store.NewTask{n}})
				r.must("put record", err)
			}
		},
		"sheet": func(r *rig) func() { return enqueue(r, r.alike(10)...) },
		"moved out of a sheet": func(r *rig) func() {
			r.lentSheet()
			return func() {
				var outcomes []store.Outcome
				for _, name := range named10() {
					outcomes = append(outcomes, r.outcome(name, store.Completed)) // with an output
				}
				r.must("finish", r.finish(r.ctx(), outcomes...))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1)
			docs := r.made(call(r))
			r.runAll()
			r.runAll() // those that have waited
			r.archive(len(r.ids))
			if len(docs) == 0 {
				t.Fatal("it has made nothing")
			}
			for _, d := range docs {
				_, err := r.b.collection(d.C).Insert(d.ID, map[string]any{}, nil)
				if !errors.Is(err, gocb.ErrDocumentExists) {
					t.Errorf("%v is made once more: %v", d, err)
				}
			}
			for _, id := range r.ids {
				if is := r.get(id); is != nil {
					t.Errorf("%v is still there: %v", id, is.State)
				}
			}
			counts, err := r.b.Count(r.ctx())
			if r.must("count", err); len(counts) > 0 {
				t.Errorf("counted %+v", counts)
			}
			before := r.f.Requests()
			tasks, err := r.b.List(r.ctx(), store.Filter{})
			if n := r.f.Requests() - before; err != nil || len(tasks) > 0 || n > 0 {
				t.Errorf("a list of nothing has %d tasks, and takes %d requests: %v", len(tasks), n, err)
			}
		})
	}
}

// runAll makes a complete everything that can run, plainly.
func (r *rig) runAll() {
	r.Helper()
	r.held = map[string]store.Task{}
	r.must("claim", r.lend(r.ctx(), 100))
	var outcomes []store.Outcome
	for name := range r.held {
		outcomes = append(outcomes, r.plainly(name)...)
	}
	r.must("finish", r.finish(r.ctx(), outcomes...))
}

// A key whose tasks were just deleted is free, and knows nothing of them.
func TestAKeyRisesFromItsGrave(t *testing.T) {
	r := newRig(t, 1)
	for i := range 3 {
		n := r.task("x", keyed("k", store.Rerun))
		n.SourceTime = time.Now().Add(-time.Duration(i) * time.Minute) // older than the one before
		did, err := r.b.Enqueue(r.ctx(), []store.NewTask{n})
		r.must("enqueue", err)
		if did[0].Result != store.Added {
			t.Fatalf("it is %v", did[0].Result)
		}
		_, err = r.b.Edit(r.ctx(), store.Edit{IDs: []store.ID{n.ID}, Change: store.Change{Op: store.Delete}})
		r.must("delete", err)
		if r.get(n.ID) != nil {
			t.Fatal("it is still there")
		}
	}
	r.drain()
}

// Tasks that were just archived can be restored.
func TestATaskRisesFromItsGrave(t *testing.T) {
	r := newRig(t, 1)
	r.add(r.task("x", nil), r.task("y", keyed("k", store.Skip)))
	r.runAll()
	r.archive(2)
	_, exist, err := r.b.Restore(r.ctx(), store.Record{Kind: "kind", Name: "r", Body: []byte("1")}, r.archived)
	r.must("restore", err)
	if len(exist) > 0 {
		t.Errorf("%v exist", exist)
	}
	for _, name := range []string{"x", "y"} {
		if is := r.get(r.ids[name]); is == nil || is.State != store.Completed {
			t.Errorf("%s is %+v", name, is)
		}
	}
	r.drain()
}

// The grave from which a task is about to rise is cleared meanwhile.
func TestATaskWhoseGraveIsClearedRises(t *testing.T) {
	r := newRig(t, 1)
	n := r.task("x", nil)
	r.add(n)
	r.runAll()
	r.archive(1)
	var step atomic.Int64
	r.f.Set(cbfake.Faults{Request: func(code memd.CmdCode, key string) cbfake.Spoil {
		switch {
		case code == memd.CmdAdd && key == n.ID.String():
			step.CompareAndSwap(0, 1)
		case code == memd.CmdGet && key == n.ID.String() && step.CompareAndSwap(1, 2):
			if _, err := r.b.tasks.Remove(key, nil); err != nil {
				t.Errorf("remove: %v", err)
			}
		}
		return cbfake.Sound
	}})
	_, _, err := r.a.Restore(r.ctx(), store.Record{Kind: "kind", Name: "r", Body: []byte("1")}, r.archived)
	r.f.Set(cbfake.Faults{})
	if r.must("restore", err); step.Load() != 2 {
		t.Error("its grave was not cleared")
	}
	r.all(true, "x")
	r.drain()
}

// A task of an unfinished unit that cannot be read counts as deleted, so that the unit can be carried out.
func TestAnUndoneUnitWhoseTaskIsDamaged(t *testing.T) {
	r := newRig(t, 1)
	r.record("r")
	n := r.task("x", nil)
	r.dieAfterMaking(n.ID, func(ctx context.Context) error {
		_, _, err := r.a.PutRecord(ctx, store.PutRecord{Record: r.note(), Tasks: []store.NewTask{n}})
		return err
	})
	r.damage(r.b.tasks, n.ID.String(), "no JSON")
	r.drain()
}

// A damaged key that was rebuilt counts as young, so it leaves a grave.
func TestAKeyThatWasMadeAnewLeavesAGrave(t *testing.T) {
	r := newRig(t, 1)
	r.a.patience = r.b.patience
	r.add(r.task("x", keyed("k", store.Skip)))
	r.damage(r.b.keys, keyOfRig, "no JSON")
	r.runAll()
	r.archive(1)
	d, err := r.b.read(r.ctx(), ref{inKey, keyOfRig})
	if r.must("read", err); d == nil || !d.header().buried() {
		t.Errorf("it has left %+v", d)
	}
}

// Two processes carry out a unit at the same time. A failover loses a lease of the task that one of them has created;
// by that lease the other took the task for written. The late process leaves the task alone.
func TestALeaseIsNoSignThatATaskWasMadeInTime(t *testing.T) {
	r := newRig(t, 1)
	r.durable("majority")
	r.record("r")
	r.b.patience = 2 * time.Millisecond
	r.a.patience = 0 // it checks whether the unit is still its own
	n := r.task("x", nil)
	root := recordRef("kind", "r").ID
	var step atomic.Int64 // each step is taken once
	r.f.Set(cbfake.Faults{Remember: time.Hour, Request: func(code memd.CmdCode, key string) cbfake.Spoil {
		switch {
		case code == memd.CmdAdd && key == n.ID.String():
			step.CompareAndSwap(0, 1)
		case code == memd.CmdGet && key == root && step.CompareAndSwap(1, 2):
			d, err := r.b.read(r.ctx(), taskRef(n.ID))
			if err != nil || d == nil {
				t.Errorf("read: %v", err)
				break
			}
			_, err = r.b.lease(r.ctx(), d, 1, r.worker.String(), store.NewToken().String(), r.b.now(r.ctx()))
			if err != nil {
				t.Errorf("lease: %v", err)
			}
			r.complete()
			for vb := range r.f.Vbuckets() {
				r.f.FailOver(vb, time.Hour)
			}
		}
		return cbfake.Sound
	}})
	_, _, err := r.a.PutRecord(r.ctx(), store.PutRecord{Record: r.note(), Tasks: []store.NewTask{n}})
	r.f.Set(cbfake.Faults{})
	r.must("put record", err)
	r.drain()
	r.all(true, "x")
}

// A grave goes by itself. Until then no index has it, so no list and no sweep goes over it.
func TestAGraveExpires(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	r.b.lateBy = time.Second
	n := r.task("x", nil)
	r.add(n)
	r.runAll()
	r.archive(1)
	d, err := r.b.read(r.ctx(), taskRef(n.ID))
	if r.must("read", err); d == nil || !d.header().buried() {
		t.Fatalf("it has left %+v", d)
	}
	for _, index := range []string{"tusk_id", "tusk_todo", "tusk_fin"} {
		if n := r.f.Indexed(r.b.scope, index); n > 0 {
			t.Errorf("the index %s has %d graves", index, n)
		}
	}
	time.Sleep(2*time.Second + 100*time.Millisecond)
	if raw, _, err := r.b.get(r.ctx(), r.b.tasks, d.ID); raw != nil || err != nil {
		t.Errorf("it is still there: %s, %v", raw, err)
	}
}

// A unit was never decided, and its root is a grave. Whoever frees what the unit has pinned writes the root as it is.
// The grave still expires.
func TestAGraveThatIsTheRootOfAnUndecidedUnitExpires(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	r.b.lateBy = time.Second
	x, y := r.task("x", nil), r.task("y", nil)
	r.add(x)
	r.runAll()
	r.archive(1)
	r.add(y)
	d, err := r.b.read(r.ctx(), taskRef(y.ID))
	r.must("read", err)
	if d, err = r.b.pin(r.ctx(), d, &pin{origin{taskRef(x.ID), "undecided"}, r.b.now(r.ctx())}); d == nil || err != nil {
		t.Fatalf("it is not pinned: %v", err)
	}
	was, err := r.b.read(r.ctx(), taskRef(x.ID))
	r.must("read", err)
	_, err = r.b.load(r.ctx(), taskRef(y.ID))
	r.must("load", err)
	is, err := r.b.read(r.ctx(), taskRef(x.ID))
	if r.must("read", err); was == nil || is == nil || is.cas == was.cas {
		t.Fatalf("the root was %+v, and is %+v", was, is)
	}
	if n := r.f.Indexed(r.b.scope, "tusk_id"); n != 1 {
		t.Errorf("lists find %d documents instead of one task", n)
	}
	time.Sleep(2*time.Second + 100*time.Millisecond)
	if raw, _, err := r.b.get(r.ctx(), r.b.tasks, is.ID); raw != nil || err != nil {
		t.Errorf("it is still there: %s, %v", raw, err)
	}
}
