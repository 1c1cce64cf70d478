package couchbase

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/couchbase/gocbcore/v10/memd"

	"github.com/tuskqueue/tusk/internal/cbfake"
)

// If a process stops at any of its requests, before or after the request took effect, another process completes
// everything. If an answer is lost, or a request is refused temporarily, nothing changes for the caller.
func TestFaultsAtEachRequest(t *testing.T) {
	all, step := faults, int64(6) // each sixth request, another one in each run; in long runs all
	if os.Getenv("TUSK_TEST_LONG") != "" {
		all, step = append(all, likeThem...), 1
	}
	for _, v := range verbs {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			for _, f := range all {
				for n, met := 1+rand.N(step), true; met; n += step {
					t.Run(fmt.Sprintf("%s %d", f.name, n), func(t *testing.T) { met = v.hit(t, f, n) && !t.Failed() })
				}
			}
		})
	}
}

// hit runs a verb with one fault, and reports whether the verb had so many requests.
func (v *verb) hit(t *testing.T, f fault, n int64) (met bool) {
	r := newRig(t, 1)
	if v.prepare != nil {
		v.prepare(r)
	}
	met, err := r.spoil(n, f, func(ctx context.Context) error { return v.do(ctx, r) })
	if err != nil && !(f.dead && met) {
		r.Fatalf("%s: %v", v.name, err)
	}
	r.drain()
	v.check(r, err == nil)
	return met
}

// Each request is refused three times before it is served: the node is busy, a durable write of the document is under
// way, and the node no longer has the document. The cluster has three nodes.
func TestRefusalsForNow(t *testing.T) {
	for _, v := range verbs {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, 3)
			if v.prepare != nil {
				v.prepare(r)
			}
			var mu sync.Mutex
			refused := map[string]int{}
			r.f.Set(cbfake.Faults{Request: func(code memd.CmdCode, key string) cbfake.Spoil {
				mu.Lock()
				defer mu.Unlock()
				n := refused[key]
				refused[key]++
				return [...]cbfake.Spoil{cbfake.Busy, cbfake.SyncWrite, cbfake.Elsewhere, cbfake.Sound}[n%4]
			}})
			err := v.do(r.ctx(), r)
			r.f.Set(cbfake.Faults{})
			r.must(v.name, err)
			r.drain()
			v.check(r, true)
		})
	}
}

// A failover at any request of a verb loses everything that the verb has written without durability. Acknowledged
// writes stay, each task ends once, and no work is left over.
func TestFailoverAtEachRequest(t *testing.T) {
	step := int64(4) // each fourth request, another one in each run; in long runs all
	if os.Getenv("TUSK_TEST_LONG") != "" {
		step = 1
	}
	for _, v := range verbs {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			for n, met := 1+rand.N(step), true; met; n += step {
				t.Run(fmt.Sprint(n), func(t *testing.T) { met = v.failOver(t, n) && !t.Failed() })
			}
		})
	}
}

func (v *verb) failOver(t *testing.T, n int64) (met bool) {
	r := newRig(t, 1)
	r.durable("majority")
	r.b.patience = 2 * time.Millisecond
	if v.prepare != nil {
		v.prepare(r)
	}
	var count atomic.Int64
	r.f.Set(cbfake.Faults{Remember: time.Hour, Request: func(memd.CmdCode, string) cbfake.Spoil {
		if count.Add(1) == n {
			for vb := range r.f.Vbuckets() {
				r.f.FailOver(vb, time.Hour)
			}
		}
		return cbfake.Sound
	}})
	err := v.do(r.ctx(), r)
	r.f.Set(cbfake.Faults{})
	r.must(v.name, err)
	r.drain()
	v.check(r, true)
	return count.Load() >= n
}
