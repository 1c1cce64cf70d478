package couchbase

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/couchbase/gocbcore/v10/memd"

	"github.com/tuskqueue/tusk/internal/cbfake"
	"github.com/tuskqueue/tusk/store"
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

// A failover has lost the page at a cursor that another claim has locked. Until the lock has expired, claims do not
// search for the next page, since they could not move the cursor there.
func TestALockedCursorWhosePageIsLost(t *testing.T) {
	r := newRig(t, 1)
	r.add(r.task("x", nil))
	_, err := r.b.makePage(r.ctx(), lineOfRig, 2)
	r.must("page", err)
	_, err = r.b.lines.Remove(lineOfRig.page(1), nil)
	r.must("remove", err)
	_, err = r.b.lines.GetAndLock(lineOfRig.cursor(), lockTime, nil)
	r.must("lock", err)
	before := r.f.Requests()
	r.look()
	if n := r.f.Requests() - before; n > 10 {
		t.Errorf("the claim takes %d requests", n)
	}
	if found, err := r.b.sweep(r.ctx(), 0); found != 0 || err != nil {
		t.Errorf("the sweep appends %d tasks, which may be listed behind the lock: %v", found, err)
	}
	r.f.ForgetLocks()
	r.add(r.task("y", nil))
	if got := r.claimAll(10); !slices.Equal(got, []store.ID{r.ids["y"]}) {
		t.Errorf("%v are claimed", got)
	}
}

// A failover has lost the last page of a lane, and a claimer has died after it locked the cursor. An enqueue does not
// wait until the lock expires.
func TestAnEnqueueDoesNotWaitForADeadClaimer(t *testing.T) {
	for name, later := range map[string]int{"no page follows": 0, "a page follows a gap": 3} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1)
			r.add(r.task("x", nil))
			_, err := r.b.lines.Remove(lineOfRig.page(1), nil)
			r.must("remove", err)
			if later > 0 {
				_, err = r.b.makePage(r.ctx(), lineOfRig, later)
				r.must("page", err)
			}
			_, err = r.a.lines.GetAndLock(lineOfRig.cursor(), lockTime, nil)
			r.must("lock", err)
			begun := time.Now()
			r.add(r.task("y", nil))
			if took := time.Since(begun); took > lockTime/4 {
				t.Errorf("the enqueue takes %v", took)
			}
			r.f.ForgetLocks()
			if got := r.claimAll(10); !slices.Equal(got, []store.ID{r.ids["y"]}) {
				t.Errorf("%v are claimed", got)
			}
			if found, err := r.b.sweep(r.ctx(), 0); found != 1 || err != nil {
				t.Errorf("the sweep finds %d tasks: %v", found, err)
			}
		})
	}
}
