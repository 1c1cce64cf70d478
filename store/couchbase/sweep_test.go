package couchbase

import (
	"sync/atomic"
	"testing"

	"github.com/couchbase/gocbcore/v10/memd"

	"github.com/tuskqueue/tusk/internal/cbfake"
	"github.com/tuskqueue/tusk/store"
)

// A sweep of a lane does not read what waits in it, if no task was passed.
func TestRequestsOfASweep(t *testing.T) {
	r := newRig(t, 1)
	size, cost := 0, map[int]int64{}
	for _, waiting := range []int{2000, 12_000} {
		for ; size < waiting; size += 1000 {
			r.add(r.some(1000)...) // each of its own kind, so that they share no document
		}
		before := r.f.Requests()
		found, err := r.b.sweep(r.ctx(), 0)
		if r.must("sweep", err); found > 0 {
			t.Errorf("%d are appended again", found)
		}
		cost[waiting] = r.f.Requests() - before
	}
	if cost[12_000] > cost[2000]+2 || cost[2000] > 12 {
		t.Errorf("the requests of a sweep, by how many tasks wait: %v", cost)
	}
	t.Logf("the requests of a sweep, by how many tasks wait: %v", cost)
	if got := r.claimAll(store.MaxPage); len(got) != size {
		t.Errorf("%d of %d are claimed", len(got), size)
	}
}

// Tasks that were passed are found behind a first entry that is still valid, and are distinguished from tasks that wait
// further behind.
func TestASweepFindsWhatWasPassedBehindWhatWaits(t *testing.T) {
	r := newRig(t, 1)
	r.add(r.some(2)...)
	r.add(r.some(1)...) // later
	at, err := r.b.open(r.ctx(), lineOfRig)
	r.must("open", err)
	r.must("move", r.b.move(r.ctx(), lineOfRig, at, cursor{1, 2}))
	r.add(r.some(2 * pageSize)...)
	found, err := r.b.sweep(r.ctx(), 0)
	if r.must("sweep", err); found != 2 {
		t.Errorf("%d of 2 tasks are appended again", found)
	}
	if got := r.claimAll(store.MaxPage); len(got) != 3+2*pageSize {
		t.Errorf("%d of %d are claimed", len(got), 3+2*pageSize)
	}
}

// The cursor has passed tasks of a call, and others of the same call, which are available since the same instant, wait
// behind it: in the same page, or in the next.
func TestASweepFindsPassedTasksOfTheCallAtTheCursor(t *testing.T) {
	for _, at := range []cursor{{1, 2}, {2, 0}} {
		r := newRig(t, 1)
		tasks, passed := r.some(pageSize+5), (at.Page-1)*pageSize+at.Place
		r.add(tasks...)
		was, err := r.b.open(r.ctx(), lineOfRig)
		r.must("open", err)
		r.must("move", r.b.move(r.ctx(), lineOfRig, was, at))
		found, err := r.b.sweep(r.ctx(), 0)
		if r.must("sweep", err); found != passed {
			t.Errorf("the cursor is at %v: %d of %d tasks are appended again", at, found, passed)
		}
		if got := r.claimAll(store.MaxPage); len(got) != len(tasks) {
			t.Errorf("the cursor is at %v: %d of %d are claimed", at, len(got), len(tasks))
		}
	}
}

// A failover has set the cursor back to a page that was deleted, and nobody claims from the lane. The sweep appends the
// tasks of that page only, and once.
func TestASweepOfALaneWhosePageAtTheCursorIsLost(t *testing.T) {
	r := newRig(t, 1)
	r.add(r.some(pageSize + 5)...)
	_, err := r.b.lines.Remove(lineOfRig.page(1), nil)
	r.must("remove", err)
	for _, want := range []int{pageSize, 0} {
		if found, err := r.b.sweep(r.ctx(), 0); found != want || err != nil {
			t.Errorf("%d tasks are appended again, want %d: %v", found, want, err)
		}
	}
	if got := r.claimAll(store.MaxPage); len(got) != pageSize+5 {
		t.Errorf("%d of %d are claimed", len(got), pageSize+5)
	}
}

// A failover has lost the seal of a full page. A claim that has claimed all of it seals it again.
func TestAPageWhoseSealWasLostHoldsUpNoClaim(t *testing.T) {
	r := newRig(t, 1)
	r.add(r.some(pageSize)...)
	r.add(r.some(5)...)
	r.spoilField(r.b.lines, lineOfRig.page(1), "g", 1)
	if got := r.claimAll(100); len(got) != pageSize+5 {
		t.Errorf("%d of %d are claimed", len(got), pageSize+5)
	}
}

// A failover has lost the seal of a page and some of its entries, so that it is not full. The sweep seals it, and lines
// up the lost tasks.
func TestAPageThatWasSealedAndIsNotFullHoldsUpNoClaimForLong(t *testing.T) {
	r := newRig(t, 1)
	r.add(r.some(3)...)
	_, err := r.b.makePage(r.ctx(), lineOfRig, 2)
	r.must("page", err)
	r.b.minds.appended(lineOfRig, 2)
	r.add(r.some(5)...)
	r.b.minds.appended(lineOfRig, 0) // another handle would not know of the second page
	if got := r.claimAll(100); len(got) != 3 {
		t.Fatalf("%d of 3 are claimed", len(got))
	}
	_, err = r.b.sweep(r.ctx(), 0)
	r.must("sweep", err)
	if got := r.claimAll(100); len(got) != 5 {
		t.Errorf("%d of 5 are claimed", len(got))
	}
}

// While a sweep looks at a lane, claims continue and delete the page that it begins with. Tasks in later pages are not
// appended again.
func TestASweepBesideClaimsAppendsNothingAgain(t *testing.T) {
	for n, met := int64(1), true; met; n++ { // at each read of that page
		r := newRig(t, 1)
		r.add(r.some(3 * pageSize)...)
		var count atomic.Int64
		r.f.Set(cbfake.Faults{Request: func(code memd.CmdCode, key string) cbfake.Spoil {
			if code == memd.CmdGet && key == lineOfRig.page(1) && count.Add(1) == n {
				_, err := r.a.Claim(r.ctx(), store.ClaimRequest{Worker: r.worker, Queues: []string{"q"}, Limit: pageSize + 1,
					Token: store.NewToken()})
				if err != nil {
					t.Errorf("claim: %v", err)
				}
			}
			return cbfake.Sound
		}})
		found, err := r.b.sweep(r.ctx(), 0)
		r.f.Set(cbfake.Faults{})
		if r.must("sweep", err); found > 0 {
			t.Errorf("read %d: %d tasks are appended again", n, found)
		}
		if met = count.Load() >= n; !met && n < 3 {
			t.Errorf("the sweep reads the page %d times", n-1)
		}
	}
}

// The tasks of a call have the same instant, and more of them wait than a sweep reads. It finds those that were passed.
func TestASweepFindsPassedTasksOfALargeCall(t *testing.T) {
	r := newRig(t, 1)
	r.add(r.some(sweepMost + 2)...)
	at, err := r.b.open(r.ctx(), lineOfRig)
	r.must("open", err)
	r.must("move", r.b.move(r.ctx(), lineOfRig, at, cursor{1, 2}))
	found, err := r.b.sweep(r.ctx(), 0)
	if r.must("sweep", err); found != 2 {
		t.Errorf("%d of 2 tasks are appended again", found)
	}
}
