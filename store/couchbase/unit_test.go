package couchbase

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/couchbase/gocbcore/v10/memd"

	"github.com/tuskqueue/tusk/internal/cbfake"
	"github.com/tuskqueue/tusk/store"
)

// The owner of a unit is slow, and another process completes the unit just after, or just before, the owner has stored
// its task. The owner notices, and leaves the task alone.
func TestAUnitThatIsCompletedByAnotherKeepsItsTasks(t *testing.T) {
	for name, at := range map[string]memd.CmdCode{"after the task is stored": memd.CmdGet,
		"before the task is stored": memd.CmdAdd} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1)
			r.record("r")
			r.a.patience = 0 // it checks whether the unit is still its own
			n := r.task("x", nil)
			root := recordRef("kind", "r").ID
			var stored, hit atomic.Bool
			r.f.Set(cbfake.Faults{Request: func(code memd.CmdCode, key string) cbfake.Spoil {
				now := code == at && (code == memd.CmdAdd && key == n.ID.String() || key == root && stored.Load())
				if now && hit.CompareAndSwap(false, true) {
					time.Sleep(2 * r.b.patience)
					if _, err := r.b.sweep(r.ctx(), 0); err != nil {
						t.Errorf("sweep: %v", err)
					}
				}
				if code == memd.CmdAdd && key == n.ID.String() {
					stored.Store(true)
				}
				return cbfake.Sound
			}})
			_, _, err := r.a.PutRecord(r.ctx(), store.PutRecord{Record: store.Record{Kind: "kind", Name: "r",
				Version: r.stored, Body: []byte("2")}, Tasks: []store.NewTask{n}})
			r.f.Set(cbfake.Faults{})
			r.must("put record", err)
			if !hit.Load() {
				t.Error("nobody has come in between")
			}
			r.drain()
			r.all(true, "x")
		})
	}
}

// Another process completes a unit at the same time as its owner. The owner finds a task there that the other has
// created, and removes the unit from its root. The other notices, and leaves the task alone.
func TestAUnitThatTwoCarryOutKeepsItsTasks(t *testing.T) {
	r := newRig(t, 1)
	r.record("r")
	n := r.task("x", nil)
	root := recordRef("kind", "r").ID
	made, ended := make(chan bool), make(chan bool)
	var adds atomic.Int64
	var other sync.WaitGroup
	r.f.Set(cbfake.Faults{Request: func(code memd.CmdCode, key string) cbfake.Spoil {
		switch {
		case code == memd.CmdAdd && key == n.ID.String() && adds.Add(1) == 1: // from the owner
			time.Sleep(2 * r.b.patience)
			other.Go(func() {
				_, err := r.b.sweep(r.ctx(), 0)
				r.must("sweep", err)
			})
			<-made
		case code == memd.CmdGet && key == root && adds.CompareAndSwap(2, 3): // from the other, which has created it
			close(made)
			<-ended
		}
		return cbfake.Sound
	}})
	_, _, err := r.a.PutRecord(r.ctx(), store.PutRecord{Record: store.Record{Kind: "kind", Name: "r",
		Version: r.stored, Body: []byte("2")}, Tasks: []store.NewTask{n}})
	close(ended)
	other.Wait()
	r.f.Set(cbfake.Faults{})
	r.must("put record", err)
	r.drain()
	r.all(true, "x")
}

// A workflow that is enqueued again under its ids, after it has run and was archived, creates nothing, as tasks that
// need nothing do.
func TestAWorkflowThatIsEnqueuedTwiceRunsOnce(t *testing.T) {
	r := newRig(t, 1)
	root := r.task("root", nil)
	tasks := []store.NewTask{root, r.task("child", needs(root.ID)), r.task("other", needs(root.ID))}
	r.add(tasks...)
	r.runAll()
	r.runAll()
	r.archive(len(tasks))
	r.add(tasks...)
	for name, id := range r.ids {
		if r.get(id) != nil {
			t.Errorf("%s is created again", name)
		}
	}
}

// dieAfterMaking makes a die once the task of its unit is stored, so that the unit stays unfinished.
func (r *rig) dieAfterMaking(id store.ID, verb func(ctx context.Context) error) {
	r.Helper()
	ctx, die := context.WithCancel(r.ctx())
	var stored atomic.Bool
	r.f.Set(cbfake.Faults{Request: func(code memd.CmdCode, key string) cbfake.Spoil {
		switch {
		case stored.Load(): // only now is it certain that the first request was carried out
			die()
			return cbfake.LoseRequest
		case code == memd.CmdAdd && key == id.String():
			stored.Store(true)
			return cbfake.LoseAnswer
		}
		return cbfake.Sound
	}})
	_ = verb(ctx) // what is decided succeeds, although the rest is left to others
	if ctx.Err() == nil || !stored.Load() {
		r.Fatal("it has not died")
	}
	r.a.Close()
	r.f.HangUp()
	r.f.Set(cbfake.Faults{})
}

// The owner of a unit dies once it has stored a task, and the task is deleted before anybody completes the unit. The
// task does not come back.
func TestATaskOfAnUndoneUnitStaysDeleted(t *testing.T) {
	change := func(s *Store, op store.Op) func(ctx context.Context, r *rig) error {
		return func(ctx context.Context, r *rig) error {
			_, err := s.Edit(ctx, store.Edit{IDs: []store.ID{r.ids["x"]}, Change: store.Change{Op: op}})
			return err
		}
	}
	makers := map[string]func(r *rig) func(ctx context.Context) error{
		"of a record": func(r *rig) func(ctx context.Context) error {
			r.record("r")
			n := r.task("x", nil)
			return func(ctx context.Context) error {
				_, _, err := r.a.PutRecord(ctx, store.PutRecord{Record: r.note(), Tasks: []store.NewTask{n}})
				return err
			}
		},
		"of a sheet": func(r *rig) func(ctx context.Context) error {
			r.add(r.alike(10)...)
			r.ids["x"] = r.ids["s3"]
			return func(ctx context.Context) error { return change(r.a, store.Cancel)(ctx, r) }
		},
		"of a key": func(r *rig) func(ctx context.Context) error {
			n := r.task("x", keyed("k", store.Skip))
			return func(ctx context.Context) error {
				_, err := r.a.Enqueue(ctx, []store.NewTask{n})
				return err
			}
		},
	}
	removers := map[string]func(r *rig){
		"deleted":  func(r *rig) { r.must("delete", change(r.b, store.Delete)(r.ctx(), r)) },
		"released": func(r *rig) { r.archive(1) },
		"pruned": func(r *rig) {
			time.Sleep(50 * time.Millisecond)
			_, err := r.b.Prune(r.ctx(), r.term, store.Retention{Cancelled: time.Microsecond}, 10)
			r.must("prune", err)
		},
	}
	for maker, prepare := range makers {
		for remover, remove := range removers {
			t.Run(maker+", "+remover, func(t *testing.T) {
				r := newRig(t, 1)
				verb := prepare(r)
				r.dieAfterMaking(r.ids["x"], verb)
				r.must("cancel", change(r.b, store.Cancel)(r.ctx(), r))
				remove(r)
				if r.get(r.ids["x"]) != nil {
					t.Fatal("it is still there")
				}
				time.Sleep(2 * r.b.patience)
				_, err := r.b.sweep(r.ctx(), 0)
				r.must("sweep", err)
				if is := r.get(r.ids["x"]); is != nil {
					t.Errorf("it has come back: %v", is.State)
				}
				r.drain()
			})
		}
	}
}
