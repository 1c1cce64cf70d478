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
