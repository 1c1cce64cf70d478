package couchbase

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/couchbase/gocbcore/v10/memd"

	"github.com/tuskqueue/tusk/internal/cbfake"
	"github.com/tuskqueue/tusk/store"
)

// The owner of a unit is slow, and somebody else completes it once the owner has stored its task, or just before. The
// owner finds that, and leaves the task alone.
func TestAUnitThatIsCompletedByAnotherKeepsItsTasks(t *testing.T) {
	for name, at := range map[string]memd.CmdCode{"after the task is stored": memd.CmdGet,
		"before the task is stored": memd.CmdAdd} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1)
			r.record("r")
			r.a.patience = 0 // it looks whether the unit is still its own
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

// Somebody else completes a unit beside its owner, who finds a task there that the other has made, and takes the unit
// off its root. The other finds that, and leaves the task alone.
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
		case code == memd.CmdAdd && key == n.ID.String() && adds.Add(1) == 1: // of the owner
			time.Sleep(2 * r.b.patience)
			other.Go(func() {
				_, err := r.b.sweep(r.ctx(), 0)
				r.must("sweep", err)
			})
			<-made
		case code == memd.CmdGet && key == root && adds.CompareAndSwap(2, 3): // of the other, who has made it
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
