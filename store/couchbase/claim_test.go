package couchbase

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/couchbase/gocbcore/v10/memd"

	"github.com/tuskqueue/tusk/internal/cbfake"
	"github.com/tuskqueue/tusk/store"
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
func TestAPageGoesThoughALeaseHasFailed(t *testing.T) {
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

// A claim has failed, and the repeated one has nothing. Its intent leaves the worker's document once no lease can
// arrive late.
func TestTheIntentOfAFailedClaimDoesNotStay(t *testing.T) {
	r := newRig(t, 1)
	r.a.lateBy = 20 * time.Millisecond
	x := r.task("x", nil)
	r.add(x)
	ctx, cancel := context.WithCancel(r.ctx())
	r.f.Set(cbfake.Faults{Request: func(code memd.CmdCode, key string) cbfake.Spoil {
		if code == memd.CmdReplace && key == x.ID.String() {
			cancel()
			return cbfake.LoseRequest
		}
		return cbfake.Sound
	}})
	claim := store.ClaimRequest{Worker: r.worker, Queues: []string{"q"}, Limit: 1, Token: store.NewToken()}
	if got, err := r.a.Claim(ctx, claim); err == nil {
		t.Fatalf("the claim got %d tasks", len(got))
	}
	r.f.Set(cbfake.Faults{})
	claim.Again = true
	if got, err := r.a.Claim(r.ctx(), claim); len(got) > 0 || err != nil {
		t.Fatalf("the repeated claim got %d tasks: %v", len(got), err)
	}
	time.Sleep(10 * r.a.lateBy)
	r.claim()
	d, err := r.b.read(r.ctx(), workerRef(r.worker.String()))
	r.must("read", err)
	if intents := d.worker().Leases; len(r.held) != 1 || len(intents) != 1 || intents[claim.Token.String()] != nil {
		t.Errorf("%d tasks are claimed, and the intents are %v", len(r.held), intents)
	}
}
