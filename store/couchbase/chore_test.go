package couchbase

import (
	"context"
	"testing"
	"time"

	"github.com/couchbase/gocbcore/v10/memd"

	"github.com/tuskqueue/tusk/internal/cbfake"
	"github.com/tuskqueue/tusk/store"
)

// A chore whose first query fails does what its other queries find, and returns the error.
func TestAChoreDoesWhatItsOtherQueriesFind(t *testing.T) {
	t.Run("admit", func(t *testing.T) {
		r := newRig(t, 1)
		r.add(r.task("x", func(n *store.NewTask) { n.RunAt = time.Now().Add(20 * time.Millisecond) }))
		time.Sleep(100 * time.Millisecond)
		r.f.DropIndex("tusk", "tusk_doom")
		if did, err := r.b.Admit(r.ctx(), r.term, 10); did.Count != 1 || err == nil {
			t.Errorf("%d are admitted: %v", did.Count, err)
		}
	})
	t.Run("prune", func(t *testing.T) {
		r := newRig(t, 1)
		r.add(r.task("x", nil))
		r.claim()
		r.must("finish", r.finish(r.ctx(), r.outcome("x", store.Completed)))
		time.Sleep(20 * time.Millisecond)
		r.f.DropIndex("tusk", "tusk_meta")
		keep := store.Retention{Stats: time.Hour, Completed: time.Millisecond}
		if n, err := r.b.Prune(r.ctx(), r.term, keep, 10); n != 1 || err == nil {
			t.Errorf("%d are deleted: %v", n, err)
		}
	})
	t.Run("sweep", func(t *testing.T) {
		r := newRig(t, 1)
		r.add(r.task("x", nil))
		r.pass(lineOfRig)
		for _, name := range []string{"tusk_todo", "tusk_todo_key", "tusk_todo_meta"} {
			r.f.DropIndex("tusk", name)
		}
		if n, err := r.b.sweep(r.ctx(), 0); n != 1 || err == nil {
			t.Errorf("%d are appended: %v", n, err)
		}
	})
}

// pass moves the cursor of a lane behind its only task.
func (r *rig) pass(l lane) {
	r.Helper()
	at, err := r.b.open(r.ctx(), l)
	r.must("open", err)
	r.must("move", r.b.move(r.ctx(), l, at, cursor{1, 1}))
}

// A lane that cannot be swept holds up others for one sweep at most.
func TestASweepBeginsBehindTheLaneWhereItFailed(t *testing.T) {
	r := newRig(t, 1)
	r.add(r.task("away", func(n *store.NewTask) { n.Queue = "a" }), r.task("x", nil))
	r.pass(lineOfRig)
	at := lane{"a", 0}.cursor()
	r.f.Set(cbfake.Faults{Request: func(_ memd.CmdCode, key string) cbfake.Spoil {
		if key == at {
			return cbfake.LoseRequest
		}
		return cbfake.Sound
	}})
	for try, want := range []int{0, 1} {
		ctx, cancel := context.WithTimeout(r.ctx(), 500*time.Millisecond)
		n, err := r.b.sweep(ctx, 0)
		cancel()
		if n != want || err == nil {
			t.Errorf("sweep %d lines up %d: %v", try, n, err)
		}
	}
}
