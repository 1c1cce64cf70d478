package couchbase

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/couchbase/gocbcore/v10/memd"

	"github.com/tuskqueue/tusk/internal/cbfake"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// A source time counts as the instant that it is, although JSON drops the seconds of its zone's offset.
func TestASourceTimeInAZoneWhoseOffsetHasSeconds(t *testing.T) {
	r := newRig(t, 1)
	enqueue := func(source time.Time) store.EnqueueResult {
		n := r.task("x", keyed("k", store.Rerun))
		n.SourceTime = source
		did, err := r.b.Enqueue(r.ctx(), []store.NewTask{n})
		r.must("enqueue", err)
		return did[0].Result
	}
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	enqueue(at.In(time.FixedZone("", 30)))
	if got := enqueue(at.Add(time.Second)); got != store.Replaced {
		t.Errorf("a newer source is %v", got)
	}
	if got := enqueue(at); got != store.Stale {
		t.Errorf("an older source is %v", got)
	}
}

// An enqueue that finds a key held, and whose holder then ends, does not bring the holder back to life.
func TestAReplacementOfWhatHasJustEnded(t *testing.T) {
	r := newRig(t, 1)
	r.add(r.task("x", keyed("k", store.Skip)))
	r.claim()
	other := openFake(t, r.f)
	var begun atomic.Bool
	r.f.Set(cbfake.Faults{Request: func(_ memd.CmdCode, key string) cbfake.Spoil {
		if key == r.ids["x"].String() && begun.CompareAndSwap(false, true) { // the key is read, its holder is not
			lost, err := other.Finish(r.ctx(), []store.Outcome{r.outcome("x", store.Completed)})
			if err != nil || len(lost) > 0 {
				t.Errorf("finish: %v, %v", lost, err)
			}
		}
		return cbfake.Sound
	}})
	did, err := r.b.Enqueue(r.ctx(), []store.NewTask{r.task("new", keyed("k", store.Replace))})
	r.must("enqueue", err)
	if did[0].Result != store.Added {
		t.Errorf("the ended task was %v", did[0].Result)
	}
	r.drain()
	r.all(true, "new")
	r.once("x", true)
}

// A rerun sees the holder of its key running and waits for its end. Before that is written the attempt fails, so that
// the holder waits for a retry. Then the holder takes the new values at once, instead of running with the old ones
// first.
func TestARerunOfWhatHasJustFailed(t *testing.T) {
	r := newRig(t, 1)
	r.add(r.task("x", keyed("k", store.Skip)))
	r.claim()
	other := openFake(t, r.f)
	name := keyRef(rules.KeyName{Queue: "q", Key: "k"}).ID
	var begun atomic.Bool
	r.f.Set(cbfake.Faults{Request: func(code memd.CmdCode, key string) cbfake.Spoil {
		if code == memd.CmdReplace && key == name && begun.CompareAndSwap(false, true) {
			o := r.outcome("x", store.Retryable)
			o.Delay = time.Hour
			lost, err := other.Finish(r.ctx(), []store.Outcome{o})
			if err != nil || len(lost) > 0 {
				t.Errorf("finish: %v, %v", lost, err)
			}
		}
		return cbfake.Sound
	}})
	did, err := r.b.Enqueue(r.ctx(), []store.NewTask{r.task("new", keyed("k", store.Rerun))})
	r.must("enqueue", err)
	if x := r.get(r.ids["x"]); did[0].Result != store.Replaced || x.State != store.Available || x.Kind != "new" {
		t.Errorf("the rerun was %v, and the task that failed is %v with the args of %s", did[0].Result, x.State, x.Kind)
	}
}
