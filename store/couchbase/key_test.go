package couchbase

import (
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
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
