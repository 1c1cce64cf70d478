package postgres

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tuskqueue/tusk/internal/witness"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/storetest"
)

func TestOfACrowdOneIsFirst(t *testing.T) {
	all := make([]store.ID, 10)
	for i := range all {
		all[i] = storetest.NewID()
	}
	firsts := map[int]int{}
	begun := time.Now()
	for turn := range 1000 {
		now := begun.Add(time.Duration(turn) * turnOfFirst)
		taken := map[int]bool{}
		for i, id := range all {
			place := placeOf([]store.ID{id}, all, now)
			taken[place] = true
			if place == 0 {
				firsts[i]++
			}
		}
		if len(taken) != len(all) {
			t.Fatalf("%d workers have %d places", len(all), len(taken))
		}
	}
	for i := range all {
		if firsts[i] < 50 || firsts[i] > 150 {
			t.Errorf("worker %d was first in %d of 1,000 turns, want about 100", i, firsts[i])
		}
	}
	now := time.Now()
	if place := placeOf(all, all, now); place != 0 {
		t.Errorf("a process with all workers has place %d", place)
	}
	if place := placeOf([]store.ID{storetest.NewID()}, all, now); place != len(all) {
		t.Errorf("a worker that the others do not know of has place %d, want the last", place)
	}
}

func TestCourtesyIsBounded(t *testing.T) {
	for _, claims := range []time.Duration{0, time.Millisecond, 10 * time.Millisecond, time.Minute} {
		last := courtesyOf(0, claims)
		if last != 0 {
			t.Errorf("the first waits for %v", last)
		}
		for place := 1; place < 100; place++ {
			wait := courtesyOf(place, claims)
			if wait < last || wait < min(max(courtesy, claims), turnOfFirst) || wait > longestCourtesy {
				t.Fatalf("claims take %v; at place %d: %v, and before it %v", claims, place, wait, last)
			}
			last = wait
		}
	}
}

// The time of a pending look is brought forward if the worker is the first one for the next task, and it looks only
// once.
func TestAPendingLookIsBroughtForward(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		me, other := storetest.NewID(), storetest.NewID()
		s := &Store{attendant: NewAttendant(nil)}
		s.attendant.locks = witness.New[attended](nowhere{s.attendant}, time.Hour)
		s.attendant.locks.Keep(attended{s, me})
		defer s.attendant.Close()
		s.near.beat(&store.Beat{Worker: store.Worker{ID: me, Queues: []string{"q"}}, TTL: time.Hour})
		var woken atomic.Int64
		c := &crowd{s: s, wake: func(string) { woken.Add(1) }, pending: map[string]pendingWake{}}
		await := func(place int) {
			for {
				s.workers.set("q", []store.ID{me, other})
				if placeOf([]store.ID{me}, []store.ID{me, other}, time.Now()) == place {
					return
				}
				time.Sleep(time.Millisecond)
			}
		}
		await(1)
		c.tell("q")
		c.tell("q")
		if woken.Load() != 0 {
			t.Fatal("the second is woken as soon as the first")
		}
		time.Sleep(courtesy)
		synctest.Wait()
		if woken.Load() != 1 {
			t.Fatalf("woken %d times, want once", woken.Load())
		}
		await(0)
		c.pending["q"] = pendingWake{time.AfterFunc(time.Second, func() { c.tellNow("q") }), time.Now().Add(time.Second)}
		c.tell("q")
		if woken.Load() != 2 {
			t.Error("the first waits for what was pending")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if woken.Load() != 2 {
			t.Error("it is woken once more for what was pending")
		}
		c.tell("others")
		if _, asked := s.workers.all["others"]; asked || woken.Load() != 3 {
			t.Errorf("of a queue of others, who takes from it is asked: %t; woken %d times", asked, woken.Load()-2)
		}
	})
}

// nowhere is an attendant that finds no server.
type nowhere struct{ *Attendant }

func (nowhere) Connect(ctx context.Context) (witness.Session[attended], error) {
	<-ctx.Done()
	return nil, ctx.Err()
}
