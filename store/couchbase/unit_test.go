package couchbase

import (
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
