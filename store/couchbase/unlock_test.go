package couchbase

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/couchbase/gocbcore/v10/memd"

	"github.com/tuskqueue/tusk/internal/cbfake"
)

// A claim of a part of a sheet leaves the cursor where it is, and unlocks it. If the lock has expired meanwhile, the
// claim does not wait long: neither if the server reports that there is no lock, as it does since 7.6, nor if it asks
// the client to try again, as it did before.
func TestAnUnlockAfterTheLockHasEnded(t *testing.T) {
	for name, old := range map[string]bool{"since 7.6": false, "before": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1)
			r.add(r.alike(10)...)
			var unlocks atomic.Int64
			r.f.Set(cbfake.Faults{OldUnlock: old, Request: func(code memd.CmdCode, _ string) cbfake.Spoil {
				if code == memd.CmdUnlockKey {
					unlocks.Add(1)
					r.f.ForgetLocks()
				}
				return cbfake.Sound
			}})
			r.a.minds.clash(lane{"q", 0}) // it claims under a lock
			begun := time.Now()
			r.must("claim", r.lend(r.ctx(), 1))
			if took := time.Since(begun); took > 3*time.Second || unlocks.Load() > 4 {
				t.Errorf("it took %v and %d unlocks", took, unlocks.Load())
			}
		})
	}
}
