package couchbase

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/couchbase/gocbcore/v10/memd"

	"github.com/tuskqueue/tusk/internal/cbfake"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/storetest"
)

// A claim names what it is about to lease before it moves the cursor, and moves the cursor before it leases. It deletes
// the page last. Only a part of a sheet is leased first, under a lock: the next claim begins at that sheet.
func TestTheStepsOfAClaim(t *testing.T) {
	single, shared := (*rig).some, (*rig).alike
	for name, c := range map[string]struct {
		tasks    func(r *rig, n int) []store.NewTask
		n, limit int
		locks    bool
		want     string
	}{
		"a task":                          {single, 1, 1, false, "intent move lease"},
		"a task, under a lock":            {single, 1, 1, true, "lock intent move lease"},
		"a page":                          {single, pageSize, pageSize, false, "intent move lease drop"},
		"a page, under a lock":            {single, pageSize, pageSize, true, "lock intent move lease drop"},
		"a sheet":                         {shared, 10, 10, false, "intent move lease"},
		"a part of a sheet":               {shared, 10, 3, false, "intent lease"},
		"a part of a sheet, under a lock": {shared, 10, 3, true, "lock intent lease move"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1)
			r.add(c.tasks(r, c.n)...)
			if c.locks {
				r.a.minds.clash(lineOfRig)
			}
			var mu sync.Mutex
			var steps []string
			r.f.Set(cbfake.Faults{Request: func(code memd.CmdCode, key string) cbfake.Spoil {
				mu.Lock()
				defer mu.Unlock()
				steps = append(steps, r.step(code, key)...)
				return cbfake.Sound
			}})
			got := r.take(r.a, r.worker, c.limit)
			r.f.Set(cbfake.Faults{})
			if took := strings.Join(slices.Compact(steps), " "); len(got) != c.limit || took != c.want {
				t.Errorf("%d of %d are claimed, by %q; want %q", len(got), c.limit, took, c.want)
			}
		})
	}
}

// step returns the step of a claim to which a request belongs; it returns none for reads.
func (r *rig) step(code memd.CmdCode, key string) []string {
	switch {
	case code == memd.CmdGetLocked:
		return []string{"lock"}
	case code == memd.CmdSubDocMultiMutation && key == workerKey(r.worker.String()):
		return []string{"intent"}
	case code == memd.CmdReplace && key == lineOfRig.cursor():
		return []string{"move"}
	case code == memd.CmdReplace:
		return []string{"lease"}
	case code == memd.CmdDelete:
		return []string{"drop"}
	}
	return nil
}

// A lease of a claim fails, and the cursor has moved to the next page. The page before it is deleted all the same, and
// the repeated claim appends the task again.
func TestAPageIsDeletedThoughALeaseHasFailed(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	tasks := r.some(pageSize) // a full page, which is sealed
	r.add(tasks...)
	r.f.Set(cbfake.Faults{Request: func(code memd.CmdCode, key string) cbfake.Spoil {
		if code == memd.CmdReplace && key == tasks[0].ID.String() {
			return cbfake.Busy // until the engine gives up
		}
		return cbfake.Sound
	}})
	claim := store.ClaimRequest{Worker: r.worker, Queues: []string{"q"}, Limit: pageSize, Token: store.NewToken()}
	if got, err := r.a.Claim(r.ctx(), claim); err == nil {
		t.Errorf("the claim got %d tasks", len(got))
	}
	r.f.Set(cbfake.Faults{})
	if p, err := r.b.readPage(r.ctx(), lineOfRig, 1); p != nil || err != nil {
		t.Errorf("the page is left: %v", err)
	}
	claim.Again = true
	if got, err := r.a.Claim(r.ctx(), claim); len(got) != pageSize-1 || err != nil {
		t.Errorf("the repeated claim got %d tasks: %v", len(got), err)
	}
	if got := r.claimAll(10); !slices.Equal(got, []store.ID{tasks[0].ID}) {
		t.Errorf("%v are claimed", got)
	}
}

// intents returns the tokens in the worker's document.
func (r *rig) intents() []string {
	r.Helper()
	d, err := r.b.read(r.ctx(), workerRef(r.worker.String()))
	r.must("read", err)
	return slices.Sorted(maps.Keys(d.worker().Leases))
}

// A claim has failed, and the repeated one has nothing. The intent leaves the worker's document, and the lease is
// refused if it arrives after that.
func TestALeaseThatArrivesAfterTheRepeatedClaim(t *testing.T) {
	for name, n := range map[string]int{"task": 1, "sheet": 10} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1)
			tasks := r.alike(n)
			r.add(tasks...)
			at := tasks[0].ID.String()
			if n > 1 {
				of, _ := block(at)
				at = of.ID
			}
			arrives, goOn := make(chan bool), make(chan bool)
			var met atomic.Bool
			r.f.Set(cbfake.Faults{Request: func(c memd.CmdCode, k string) cbfake.Spoil {
				if c == memd.CmdReplace && k == at && met.CompareAndSwap(false, true) {
					close(arrives)
					<-goOn
				}
				return cbfake.Sound
			}})
			claim := store.ClaimRequest{Worker: r.worker, Queues: []string{"q"}, Limit: n, Token: store.NewToken()}
			ctx, cancel := context.WithCancel(r.ctx())
			claimed := make(chan error)
			go func() {
				_, err := r.a.Claim(ctx, claim)
				claimed <- err
			}()
			<-arrives
			cancel()
			if err := <-claimed; err == nil {
				t.Fatal("the claim succeeds")
			}
			claim.Again = true
			if got, err := r.b.Claim(r.ctx(), claim); len(got) > 0 || err != nil {
				t.Fatalf("the repeated claim got %d tasks: %v", len(got), err)
			}
			close(goOn)
			if _, err := r.a.read(r.ctx(), workerRef(r.worker.String())); err != nil { // on the same connection
				t.Fatal(err)
			}
			if intents := r.intents(); len(intents) > 0 {
				t.Errorf("the intents are %v", intents)
			}
			if got := r.take(r.b, r.worker, n); len(got) != n {
				t.Errorf("%d of %d are claimed", len(got), n)
			}
		})
	}
}

// A worker's document gets rid of all tokens under which the worker holds nothing, although another handle, to which a
// claim was repeated, has removed one of them before.
func TestTokensAreRemovedThoughOneIsGone(t *testing.T) {
	r := newRig(t, 1)
	claim := store.ClaimRequest{Worker: r.worker, Queues: []string{"q"}, Limit: 1, Token: store.NewToken()}
	r.add(r.some(1)...)
	first := r.take(r.a, r.worker, 1)
	r.add(r.some(1)...)
	other := storetest.NewID()
	r.beat(r.b, other, time.Hour)
	r.f.Set(cbfake.Faults{Request: func(c memd.CmdCode, k string) cbfake.Spoil {
		if c == memd.CmdReplace && k == lineOfRig.cursor() {
			r.f.Set(cbfake.Faults{})
			r.take(r.b, other, 1)
		}
		return cbfake.Sound
	}})
	if got, err := r.a.Claim(r.ctx(), claim); len(got) > 0 || err != nil {
		t.Fatalf("the claim got %d tasks: %v", len(got), err)
	}
	claim.Again = true // its answer was lost
	if got, err := r.b.Claim(r.ctx(), claim); len(got) > 0 || err != nil {
		t.Fatalf("the repeated claim got %d tasks: %v", len(got), err)
	}
	r.endAll(r.a, first)
	r.add(r.some(1)...)
	held := r.take(r.a, r.worker, 1)
	if intents := r.intents(); !slices.Equal(intents, []string{held[0].Lease.String()}) {
		t.Errorf("the intents are %v", intents)
	}
}
