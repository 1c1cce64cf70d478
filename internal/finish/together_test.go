package finish

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
)

func TestOutcomesOfOneClaimAreWrittenTogetherOrAfterAWhile(t *testing.T) {
	var l ledger
	o := quiet(func(store.Outcome) {})
	o.Largest, o.Linger = 100, 2*time.Millisecond
	gathering(t, &l, o, func(g *Gatherer) {
		var open atomic.Int64
		open.Store(3)
		for i := range 3 {
			g.Add(outcome(byte(i)), time.Now(), &open)
			time.Sleep(3 * time.Millisecond)
		}
		time.Sleep(time.Second)
		l.mu.Lock()
		if l.calls != 1 {
			t.Errorf("%d writes for three outcomes within 9 ms: %v", l.calls, l.sizes)
		}
		l.mu.Unlock()
		open.Store(2) // one of this claim runs for long
		g.Add(outcome(10), time.Now(), &open)
		time.Sleep(100 * time.Millisecond)
		if l.taken(10) != 1 {
			t.Error("waits for the others of its claim for ever")
		}
	})
}

func TestAFewOutcomesWaitForThoseThatAreAboutToCome(t *testing.T) {
	writes := func(soon int) int {
		var l ledger
		o := quiet(func(store.Outcome) {})
		o.Largest, o.Linger, o.Soon = 100, 2*time.Millisecond, func(time.Duration) int { return soon }
		gathering(t, &l, o, func(g *Gatherer) {
			for i := range 30 {
				o := outcome(byte(i))
				o.Task.Key = "k" // another task may wait for it
				add(g, o)
				time.Sleep(time.Millisecond)
			}
			time.Sleep(time.Second)
		})
		return l.calls
	}
	if n := writes(10); n > 4 {
		t.Errorf("%d writes of 30 outcomes within 30 ms, and more to come", n)
	}
	if n := writes(1); n < 10 {
		t.Errorf("%d writes of 30 outcomes within 30 ms, and no more to come: they waited", n)
	}
}

func TestAfterAnOutageOutcomesAreSoonWrittenTogetherAgain(t *testing.T) {
	l := &ledger{fail: func(call int, _ []store.Outcome) (before, after error) {
		if call > 20 {
			return nil, nil
		}
		return errors.New("away"), nil
	}}
	o := quiet(func(store.Outcome) {})
	o.Largest = 1000
	gathering(t, l, o, func(g *Gatherer) {
		var left atomic.Int64
		left.Store(200)
		for i := range 200 {
			g.Add(outcome(byte(i)), time.Now(), &left)
		}
		time.Sleep(5 * time.Minute)
	})
	if len(l.accepted) != 200 || l.calls > 40 {
		t.Errorf("%d outcomes were written with %d calls: %v", len(l.accepted), l.calls, l.sizes)
	}
}

func TestMereCompletionsOfASteadyStreamAreWrittenTogether(t *testing.T) {
	for name, c := range map[string]struct {
		every       time.Duration
		change      func(*store.Outcome)
		least, most int // writes of 40 outcomes
	}{
		"100 a second":           {10 * time.Millisecond, func(*store.Outcome) {}, 8, 14},
		"20 a second":            {50 * time.Millisecond, func(*store.Outcome) {}, 40, 40},
		"of tasks with a turn":   {10 * time.Millisecond, func(o *store.Outcome) { o.Task.Turn = true }, 40, 40},
		"of steps of a workflow": {10 * time.Millisecond, func(o *store.Outcome) { o.Task.Workflow = store.ID{1} }, 40, 40},
		"that follow a key":      {10 * time.Millisecond, func(o *store.Outcome) { o.Task.Key = "k" }, 40, 40},
		"that failed":            {10 * time.Millisecond, func(o *store.Outcome) { o.State = store.Scheduled }, 40, 40},
	} {
		t.Run(name, func(t *testing.T) {
			var l ledger
			o := quiet(func(store.Outcome) {})
			o.Largest, o.Linger = 100, 2*time.Millisecond
			gathering(t, &l, o, func(g *Gatherer) {
				for i := range 40 {
					o := outcome(byte(i))
					c.change(&o)
					add(g, o)
					time.Sleep(c.every)
				}
				time.Sleep(leisure)
				if l.mu.Lock(); len(l.accepted) != 40 {
					t.Errorf("%d of 40 are stored after %v", len(l.accepted), leisure)
				}
				l.mu.Unlock()
			})
			if l.calls < c.least || l.calls > c.most {
				t.Errorf("%d writes of 40 outcomes, want %d to %d: %v", l.calls, c.least, c.most, l.sizes)
			}
		})
	}
}

func TestASmallWriteTakesAlongWhatWaitsForItsClaim(t *testing.T) {
	var l ledger
	o := quiet(func(store.Outcome) {})
	o.Largest, o.Linger = 100, 2*time.Millisecond
	gathering(t, &l, o, func(g *Gatherer) {
		var open, many atomic.Int64
		open.Store(5)
		g.Add(outcome(1), time.Now(), &open)
		many.Store(1000)
		for i := range few {
			o := outcome(byte(100 + i))
			o.Task.Lease = store.Token{1}
			g.Add(o, time.Now(), &many)
		}
		alone := outcome(2)
		alone.Task.Lease = store.Token{2}
		add(g, alone)
		time.Sleep(5 * time.Millisecond)
		if l.taken(1) != 1 || l.taken(2) != 1 {
			t.Error("what waited for others of its claim was not taken along")
		}
		if l.taken(100) != 0 {
			t.Error("much of a large claim was taken along")
		}
	})
}
