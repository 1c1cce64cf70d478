package tend

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tuskqueue/tusk/internal/allot"
	"github.com/tuskqueue/tusk/internal/tick"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

// early is a store whose clock is ahead of this process's. While it is slow, reading records and campaigning take a
// moment, and the first call of Admit is told that it does not lead.
type early struct {
	store.Store
	ahead   time.Duration
	slow    atomic.Bool
	refused atomic.Bool
}

func (s *early) Lead(ctx context.Context, c store.Candidate) (store.Leadership, error) {
	if s.slow.Load() {
		time.Sleep(1900 * time.Millisecond)
	}
	answer, err := s.Store.Lead(ctx, c)
	answer.Now = answer.Now.Add(s.ahead)
	return answer, err
}

func (s *early) Records(ctx context.Context, f store.RecordFilter) ([]store.Record, error) {
	if s.slow.Load() && f.Kind == tick.RecordKind {
		time.Sleep(time.Second)
	}
	return s.Store.Records(ctx, f)
}

func (s *early) Admit(ctx context.Context, term int64, limit int) (store.Admitted, error) {
	if s.slow.Load() && !s.refused.Swap(true) {
		return store.Admitted{}, store.ErrNotLeader
	}
	return s.Store.Admit(ctx, term, limit)
}

// A chore that is running when its term ends uses the engine's clock, not this machine's: otherwise the cursor of a
// schedule would go back, and its ticks would fire again.
func TestTheEndOfATermDoesNotChangeTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := memory.New()
		s := &early{Store: inner, ahead: 2 * time.Hour}
		plan(t, inner, "s", tick.Schedule{Spec: "@every 1s", Kind: "k", Missed: tick.MissedAll, Overlap: tick.OverlapAllow,
			Next: time.Now().Add(s.ahead + 10*time.Second)})
		_, kill := lead(s, 1)
		time.Sleep(20 * time.Second)
		s.slow.Store(true)
		time.Sleep(5 * time.Second)
		if !s.refused.Load() {
			t.Fatal("nobody was refused")
		}
		s.slow.Store(false)
		time.Sleep(10 * time.Second)
		fired := ticks(t, inner)
		for i := 1; i < len(fired); i++ {
			if fired[i].Equal(fired[i-1]) {
				t.Errorf("the tick %v fired twice", fired[i])
			}
		}
		if len(fired) < 20 {
			t.Errorf("%d ticks in 25 seconds", len(fired))
		}
		kill()
	})
}

// jumpy is a store whose clock is set forward. Terms end by it, and so do the leases of workers that have not beaten
// since.
type jumpy struct {
	store.Store
	ahead, led atomic.Int64 // how far the clock is ahead, now and when a term last began
	taken      atomic.Int64 // how often a worker could have been declared dead since
}

func (s *jumpy) Lead(ctx context.Context, c store.Candidate) (store.Leadership, error) {
	answer, err := s.Store.Lead(ctx, c)
	s.led.Store(s.ahead.Load())
	answer.Now = answer.Now.Add(time.Duration(s.ahead.Load()))
	return answer, err
}

func (s *jumpy) Rescue(context.Context, int64, int) ([]store.Task, error) {
	if s.led.Load() != s.ahead.Load() {
		return nil, store.ErrNotLeader
	}
	if s.ahead.Load() > 0 {
		s.taken.Add(1)
	}
	return nil, nil
}

// If the engine's clock is set forward, every lease seems to be over. Every worker gets time to beat.
func TestAClockSetForwardIsNobodysDeath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &jumpy{Store: memory.New()}
		beat := store.Beat{Worker: store.Worker{ID: newID()}, TTL: ttl}
		if _, err := s.Extend(t.Context(), beat); err != nil {
			t.Fatal(err)
		}
		_, kill := lead(s, 1)
		defer kill()
		time.Sleep(5 * time.Second)
		s.ahead.Store(int64(time.Hour))
		time.Sleep(ttl * 2 / 3) // as late as a worker beats whose beats have failed
		if n := s.taken.Load(); n > 0 {
			t.Errorf("%d looks for the dead before workers could beat", n)
		}
		time.Sleep(2 * ttl)
		if s.taken.Load() == 0 {
			t.Error("nobody looks for the dead any more")
		}
	})
}

// A process that has only seen another one lead, and never campaigned, also knows this when it becomes the leader.
func TestAFollowerKnowsOfAClockThatWasSetForward(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &jumpy{Store: memory.New()}
		if _, err := s.Extend(t.Context(), store.Beat{Worker: store.Worker{ID: newID()}, TTL: ttl}); err != nil {
			t.Fatal(err)
		}
		l := candidate(s, 1)
		for range 5 {
			l.Saw(store.ID{9}, time.Now(), time.Now(), time.Second)
			time.Sleep(time.Second)
		}
		s.ahead.Store(int64(time.Hour))
		defer run(l)()
		l.Saw(store.ID{}, time.Now().Add(time.Hour), time.Now(), time.Second)
		time.Sleep(ttl * 2 / 3)
		if l.Term() == 0 {
			t.Fatal("it does not lead")
		}
		if n := s.taken.Load(); n > 0 {
			t.Errorf("%d looks for the dead before workers could beat", n)
		}
		time.Sleep(2 * ttl)
		if s.taken.Load() == 0 {
			t.Error("nobody looks for the dead any more")
		}
	})
}

// The answer to one look is slow, as if another server were slow, and the next one is not. No clock was set.
func TestALookThatTookLongIsNoClockThatWasSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &jumpy{Store: memory.New()}
		l := candidate(s, 1)
		said, asked := time.Now(), time.Now()
		l.Saw(store.ID{9}, said, asked, time.Second)
		time.Sleep(ttl / 2)
		said, asked = time.Now(), time.Now()
		time.Sleep(ttl * 3 / 4)
		l.Saw(store.ID{9}, said, asked, time.Second)
		l.back = time.Time{} // so long without an answer is an outage
		l.Saw(store.ID{9}, time.Now(), time.Now(), time.Second)
		if !l.back.IsZero() {
			t.Error("the engine's clock seems to have gone forward")
		}
		time.Sleep(time.Second)
		l.Saw(store.ID{9}, time.Now().Add(ttl), time.Now(), time.Second)
		if l.back.IsZero() {
			t.Error("a clock that was set forward went unseen")
		}
	})
}

// A window of a rate that a clock which was ahead has begun is stored. When the clock is corrected, no task waits for
// it, whoever leads.
func TestAClockSetBackStallsNoRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := memory.New()
		s := &early{Store: inner, ahead: time.Hour}
		limits, err := json.Marshal(allot.Limits{Rate: &allot.Rate{Allowed: 5, Period: time.Second,
			Algorithm: allot.SlidingWindow}})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := inner.PutRecord(t.Context(), store.PutRecord{
			Record: store.Record{Kind: allot.RecordKind, Name: "q", Body: limits}}); err != nil {
			t.Fatal(err)
		}
		if _, err := inner.Extend(t.Context(), store.Beat{TTL: time.Hour,
			Worker: store.Worker{ID: newID(), Queues: []string{"q"}, Concurrency: 100}}); err != nil {
			t.Fatal(err)
		}
		for range 40 {
			if _, err := inner.Enqueue(t.Context(), []store.NewTask{
				{ID: newID(), Kind: "k", Queue: "q", Turn: true, Args: []byte("{}")}}); err != nil {
				t.Fatal(err)
			}
		}
		waiting := func() int {
			found, err := inner.List(t.Context(), store.Filter{States: []store.State{store.Pending}, Limit: 100})
			if err != nil {
				t.Fatal(err)
			}
			return len(found)
		}
		_, kill := lead(s, 1)
		time.Sleep(500 * time.Millisecond) // the window is full
		kill()
		if n := waiting(); n == 0 || n == 40 {
			t.Fatalf("%d wait when the clock is set back", n)
		}
		s = &early{Store: inner}
		_, kill = lead(s, 2)
		defer kill()
		time.Sleep(30 * time.Second)
		if n := waiting(); n > 0 {
			t.Errorf("%d still wait for their turn", n)
		}
	})
}
