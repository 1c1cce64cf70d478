package couchbase

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/couchbase/gocbcore/v10/memd"

	"github.com/tuskqueue/tusk/internal/cbfake"
	"github.com/tuskqueue/tusk/store"
)

var rare = lane{"q", -5}

// rarely makes a task of another lane than most.
func (r *rig) rarely(name string) store.NewTask {
	return r.task(name, func(n *store.NewTask) { n.Priority = rare.Priority })
}

// idle makes an hour pass, for the server and for what the handles remember.
func (r *rig) idle() {
	r.Helper()
	r.f.JumpClock(idleFor + time.Minute)
	for _, s := range []*Store{r.a, r.b} {
		r.must("sync", s.sync(r.ctx()))
		for _, l := range []lane{lineOfRig, rare} {
			s.minds.change(l, func(is *mind) { is.tailAt = is.tailAt.Add(-idleFor) })
		}
	}
	r.beat(r.a, r.worker, 100*time.Hour)
}

// look makes a claim nothing.
func (r *rig) look() {
	r.Helper()
	if r.claim(); len(r.held) > 0 {
		r.Fatalf("it has claimed %v", r.held)
	}
}

// listed fails unless these lanes are on the board.
func (r *rig) listed(want ...lane) {
	r.Helper()
	lanes, err := r.b.lanes(r.ctx(), "q")
	if r.must("read the board", err); !slices.Equal(lanes, want) {
		r.Errorf("the board has %v, want %v", lanes, want)
	}
}

// A lane that nobody uses leaves its board, and claims no longer read it. Whoever stores a task in it enters it again.
func TestALaneThatNobodyUsesCostsClaimsNothing(t *testing.T) {
	r := newRig(t, 1)
	r.add(r.task("x", nil), r.rarely("y"))
	if got := r.claimAll(10); len(got) != 2 {
		t.Fatalf("%d of 2 are claimed", len(got))
	}
	r.look()
	r.listed(rare, lineOfRig)
	r.idle()
	r.add(r.task("x2", nil)) // the other lane is used
	if got := r.claimAll(10); len(got) != 1 {
		t.Fatalf("%d of 1 are claimed", len(got))
	}
	r.listed(lineOfRig)
	before, writes := r.f.Requests(), r.f.Writes()
	r.look()
	if n, writes := r.f.Requests()-before, r.f.Writes()-writes; n > 4 || writes > 0 {
		t.Errorf("an idle poll takes %d requests and %d writes", n, writes)
	}
	r.idle()
	r.look()
	r.listed()
	for name, s := range map[string]*Store{"one that has looked": r.a, "another": r.b} {
		_, err := s.Enqueue(r.ctx(), []store.NewTask{r.rarely(name)})
		r.must("enqueue", err)
		if got := r.claimAll(10); len(got) != 1 {
			t.Errorf("%s has stored a task, and %d are claimed", name, len(got))
		}
		r.listed(rare)
		r.idle()
		r.look()
		r.listed()
	}
}

// A task is stored at each request of the claim by which its lane leaves the board. Nothing sweeps.
func TestATaskThatComesWhileItsLaneLeavesTheBoardIsClaimed(t *testing.T) {
	for n, met := int64(1), true; met; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			r := newRig(t, 1)
			r.add(r.rarely("before"))
			r.claimAll(10)
			r.idle()
			x := r.rarely("x")
			var count atomic.Int64
			r.f.Set(cbfake.Faults{Request: func(memd.CmdCode, string) cbfake.Spoil {
				if count.Add(1) == n {
					if _, err := r.b.Enqueue(r.ctx(), []store.NewTask{x}); err != nil {
						t.Errorf("enqueue: %v", err)
					}
				}
				return cbfake.Sound
			}})
			r.claim()
			r.f.Set(cbfake.Faults{})
			if met = count.Load() >= n; !met {
				r.listed() // without anybody in between it has left
				return
			}
			if got := r.claimAll(10); len(got)+len(r.held) != 1 {
				t.Error("the task is not claimed")
			}
		})
	}
}
