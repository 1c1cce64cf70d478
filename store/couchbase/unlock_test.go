package couchbase

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/couchbase/gocbcore/v10/memd"

	"github.com/tuskqueue/tusk/internal/cbfake"
)

// A claim of a part of a sheet leaves the cursor where it is, and unlocks it, so that the next claim need not wait
// until the lock expires. It does not wait either if the lock has expired meanwhile.
func TestAClaimOfAPartOfASheetUnlocksTheCursor(t *testing.T) {
	for name, expired := range map[string]bool{"in time": false, "after the lock has expired": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1)
			r.add(r.alike(10)...)
			var writes, locks atomic.Int64
			r.f.Set(cbfake.Faults{Request: func(code memd.CmdCode, key string) cbfake.Spoil {
				switch {
				case code == memd.CmdGetLocked:
					locks.Add(1)
				case code == memd.CmdReplace && key == lineOfRig.cursor():
					if writes.Add(1); expired {
						r.f.ForgetLocks()
					}
				}
				return cbfake.Sound
			}})
			begun := time.Now()
			for range 3 {
				r.a.minds.clash(lineOfRig) // it claims under a lock
				r.must("claim", r.lend(r.ctx(), 1))
			}
			if took := time.Since(begun); took > lockTime/2 || locks.Load() != 3 || writes.Load() != 3 {
				t.Errorf("three claims took %v, %d locks and %d writes of the cursor", took, locks.Load(), writes.Load())
			}
		})
	}
}
