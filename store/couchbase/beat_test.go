package couchbase

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/couchbase/gocbcore/v10/memd"

	"github.com/tuskqueue/tusk/internal/cbfake"
	"github.com/tuskqueue/tusk/store"
)

// A beat does not report a worker as living if its document has been deleted meanwhile.
func TestABeatOfAWorkerThatIsForgottenMeanwhile(t *testing.T) {
	r := newRig(t, 1)
	r.add(r.task("x", nil))
	r.claim()
	r.must("cancel", edit(store.Change{Op: store.Cancel})(r.ctx(), r))
	r.must("finish", r.finish(r.ctx(), r.outcome("x", store.Completed)))
	beat := store.Beat{Worker: store.Worker{ID: r.worker, Queues: []string{"q"}}, TTL: time.Hour}
	var gone atomic.Bool
	r.f.Set(cbfake.Faults{Request: func(c memd.CmdCode, k string) cbfake.Spoil {
		if c == memd.CmdGet && k == r.ids["x"].String() && gone.CompareAndSwap(false, true) {
			if _, err := r.b.meta.Remove(workerKey(r.worker.String()), nil); err != nil {
				t.Errorf("remove: %v", err)
			}
		}
		return cbfake.Sound
	}})
	stops, err := r.a.Extend(r.ctx(), beat)
	r.f.Set(cbfake.Faults{})
	if !gone.Load() || !errors.Is(err, store.ErrWorkerDead) {
		t.Errorf("gone: %v; the beat is answered %v, %v", gone.Load(), stops, err)
	}
}

// A worker signs off while somebody else writes its document. Its last notes are stored once.
func TestTheNotesOfASignOffAreStoredOnce(t *testing.T) {
	r := newRig(t, 1)
	r.add(r.task("x", nil))
	r.claim()
	var met atomic.Bool
	r.f.Set(cbfake.Faults{Request: func(c memd.CmdCode, k string) cbfake.Spoil {
		if c == memd.CmdReplace && k == workerKey(r.worker.String()) && met.CompareAndSwap(false, true) {
			r.must("stop", r.b.stop(r.ctx(), &task{ID: r.key("x"), Run: []lease{{Worker: r.worker.String()}}}))
		}
		return cbfake.Sound
	}})
	_, err := r.a.Extend(r.ctx(), store.Beat{Worker: store.Worker{ID: r.worker}, Notes: []store.Note{
		{ID: r.ids["x"], Lease: r.held["x"].Lease, Logs: []store.LogLine{{Text: "once"}}}}})
	r.must("sign off", err)
	if logs := r.get(r.ids["x"]).Detail.Logs; len(logs) != 1 || !met.Load() {
		t.Errorf("met: %v; the logs are %+v", met.Load(), logs)
	}
}

// A worker dies, and its document expires. Somebody who has known it as living, or as dead with something left to do,
// writes a part of it late. It still expires.
func TestTheDocumentOfADeadWorkerExpires(t *testing.T) {
	for name, write := range map[string]func(r *rig, living, dead *doc) error{
		"a cancel": func(r *rig, _, _ *doc) error {
			return r.a.stop(r.ctx(), &task{ID: r.key("x"), Run: []lease{{Worker: r.worker.String()}}})
		},
		"a beat": func(r *rig, living, _ *doc) error {
			_, err := r.a.answerBeat(r.ctx(), living.worker(), &store.Beat{Worker: store.Worker{ID: r.worker}})
			return err
		},
		"another leader": func(r *rig, _, dead *doc) error {
			_, err := r.a.leftBy(r.ctx(), r.worker.String(), dead)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1)
			r.add(r.task("x", nil))
			r.claim()
			r.must("finish", r.finish(r.ctx(), r.outcome("x", store.Completed)))
			r.beat(r.b, r.worker, time.Nanosecond)
			r.must("stop", r.b.stop(r.ctx(), &task{ID: r.key("x"), Run: []lease{{Worker: r.worker.String()}}}))
			living, err := r.b.read(r.ctx(), workerRef(r.worker.String()))
			r.must("read", err)
			dead, err := r.b.read(r.ctx(), workerRef(r.worker.String()))
			r.must("read", err)
			dead.worker().G = nil
			_, err = r.b.Rescue(r.ctx(), r.term, 10)
			r.must("rescue", err)
			d, err := r.b.read(r.ctx(), workerRef(r.worker.String()))
			if r.must("read", err); !d.worker().Combed || len(living.worker().Stops)+len(dead.worker().Leases) != 2 {
				t.Fatalf("it is %s, and was %s", d.raw, living.raw)
			}
			r.must("write", write(r, living, dead))
			r.f.JumpClock(forgetAfter + time.Minute)
			if raw, _, err := r.b.get(r.ctx(), r.b.meta, d.ID); raw != nil || err != nil {
				t.Errorf("it is still there: %s, %v", raw, err)
			}
		})
	}
}
