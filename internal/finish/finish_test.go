package finish

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// ledger is a store that fails as it is told and remembers what it accepted.
type ledger struct {
	mu       sync.Mutex
	fail     func(call int, outcomes []store.Outcome) (before, after error)
	calls    int
	sizes    []int
	accepted map[store.ID]int
}

func (l *ledger) Finish(_ context.Context, outcomes []store.Outcome) (lost []store.ID, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls++
	l.sizes = append(l.sizes, len(outcomes))
	var before, after error
	if l.fail != nil {
		before, after = l.fail(l.calls, outcomes)
	}
	if before != nil {
		return nil, before
	}
	for _, o := range outcomes {
		if l.accepted[o.Task.ID]++; l.accepted[o.Task.ID] > 1 {
			lost = append(lost, o.Task.ID)
		}
	}
	return lost, after
}

// taken returns how often an outcome was accepted.
func (l *ledger) taken(n byte) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.accepted[store.ID{n}]
}

func outcome(n byte) store.Outcome {
	return store.Outcome{Task: &store.Task{ID: store.ID{n}}, State: store.Completed}
}

// add adds an outcome that is alone in its claim.
func add(g *Gatherer, o store.Outcome) {
	var left atomic.Int64
	left.Store(1)
	g.Add(o, time.Now(), &left)
}

// quiet returns options for small batches, with a log that nobody reads.
func quiet(done func(store.Outcome)) Options {
	return Options{Largest: 10, Linger: time.Millisecond, Soon: func(time.Duration) int { return 0 },
		Deadline: time.Second, Log: slog.New(slog.DiscardHandler),
		Done: func(outcomes []store.Outcome, _ map[store.ID]bool) {
			for _, o := range outcomes {
				done(o)
			}
		}}
}

// gathering makes feed add outcomes to a gatherer that runs in a bubble with its own time, and ends it.
func gathering(t *testing.T, l *ledger, o Options, feed func(g *Gatherer)) {
	t.Helper()
	l.accepted = map[store.ID]int{}
	synctest.Test(t, func(t *testing.T) {
		g := New(l, o)
		done := make(chan struct{})
		go func() { g.Run(context.Background()); close(done) }()
		feed(g)
		g.Close()
		<-done
		add(g, outcome(255)) // after the end: dropped, not blocked
	})
}

// gather sends n outcomes through a gatherer.
func gather(t *testing.T, l *ledger, n int) (written []store.ID) {
	o := quiet(func(o store.Outcome) { written = append(written, o.Task.ID) })
	o.Linger = 2 * time.Millisecond
	gathering(t, l, o, func(g *Gatherer) {
		for i := range n {
			add(g, outcome(byte(i)))
		}
		time.Sleep(time.Minute)
	})
	return written
}

func TestOutcomesAreWrittenInBatchesAndInOrder(t *testing.T) {
	var l ledger
	written := gather(t, &l, 35)
	if len(written) != 35 || !slices.IsSortedFunc(written, func(a, b store.ID) int { return int(a[0]) - int(b[0]) }) {
		t.Error(written)
	}
	if l.calls > 8 || slices.Max(l.sizes) != 10 {
		t.Errorf("batches of %v", l.sizes)
	}
}

func TestNothingIsLostWhenTheStoreFailsBeforeOrAfterItsWrite(t *testing.T) {
	boom := errors.New("boom")
	l := ledger{fail: func(call int, _ []store.Outcome) (before, after error) {
		switch call % 4 {
		case 1:
			return boom, nil
		case 2:
			return nil, boom
		case 3:
			panic("argh")
		}
		return nil, nil
	}}
	written := gather(t, &l, 35)
	if len(written) != 35 || len(l.accepted) != 35 {
		t.Errorf("written %d, accepted %d", len(written), len(l.accepted))
	}
}

// poisoned refuses batches with an outcome that completes task 7.
func poisoned(_ int, outcomes []store.Outcome) (before, after error) {
	for _, o := range outcomes {
		if o.Task.ID[0] == 7 && o.State == store.Completed {
			return errors.New("poison"), nil
		}
	}
	return nil, nil
}

func TestAnOutcomeThatNoStoreTakesHoldsUpOnlyItselfAndBecomesADeadLetter(t *testing.T) {
	l := ledger{fail: poisoned}
	var discarded []store.ID
	note := func(o store.Outcome) {
		if o.State == store.Discarded {
			discarded = append(discarded, o.Task.ID)
		}
	}
	gathering(t, &l, quiet(note), func(g *Gatherer) {
		for i := range 20 {
			add(g, outcome(byte(i)))
		}
		for i := range 10 {
			time.Sleep(10 * time.Second)
			add(g, outcome(byte(100+i)))
		}
		time.Sleep(time.Minute)
	})
	if len(l.accepted) != 30 || len(discarded) != 1 || discarded[0] != (store.ID{7}) {
		t.Errorf("accepted %d, discarded %v", len(l.accepted), discarded)
	}
}

func TestAnOutcomeThatWasSetAsideIsWrittenWhileOthersKeepComing(t *testing.T) {
	l := ledger{fail: func(call int, _ []store.Outcome) (before, after error) {
		if call <= 2 {
			return errors.New("a blip"), nil
		}
		return nil, nil
	}}
	gathering(t, &l, quiet(func(store.Outcome) {}), func(g *Gatherer) {
		add(g, outcome(7))
		for i := range 100 {
			time.Sleep(100 * time.Millisecond)
			add(g, outcome(byte(100+i)))
		}
		if l.taken(7) != 1 {
			t.Error("still set aside")
		}
	})
}

// Other outcomes are stored meanwhile: they need another lock, or are on another server.
func TestWhatIsNoFaultOfAnOutcomeDiscardsNothing(t *testing.T) {
	for _, cause := range []error{context.DeadlineExceeded, store.ErrUnavailable, store.ErrFull, store.ErrReadOnly,
		store.ErrSchemaOld} {
		var start time.Time
		l := ledger{fail: func(_ int, outcomes []store.Outcome) (before, after error) {
			if time.Since(start) < 5*time.Minute &&
				slices.ContainsFunc(outcomes, func(o store.Outcome) bool { return o.Task.ID == store.ID{7} }) {
				return fmt.Errorf("finish: %w", cause), nil
			}
			return nil, nil
		}}
		states := map[store.State]int{}
		gathering(t, &l, quiet(func(o store.Outcome) { states[o.State]++ }), func(g *Gatherer) {
			start = time.Now()
			for i := range 60 {
				add(g, outcome(byte(i)))
				time.Sleep(10 * time.Second)
			}
		})
		if states[store.Completed] != 60 || len(states) != 1 {
			t.Error(cause, states)
		}
	}
}

func TestAnOutageDiscardsNothing(t *testing.T) {
	var start time.Time
	l := ledger{fail: func(int, []store.Outcome) (before, after error) {
		if time.Since(start) < time.Hour {
			return errors.New("down"), nil
		}
		return nil, nil
	}}
	states := map[store.State]int{}
	gathering(t, &l, quiet(func(o store.Outcome) { states[o.State]++ }), func(g *Gatherer) {
		start = time.Now()
		for i := range 20 {
			add(g, outcome(byte(i)))
		}
		time.Sleep(2 * time.Hour)
	})
	if states[store.Completed] != 20 || len(states) != 1 {
		t.Error(states)
	}
}

func TestTheCauseForWhichOutcomesWereNotWrittenIsLoggedAndCounts(t *testing.T) {
	held := fmt.Errorf("finish: %w", &store.HeldError{Tasks: []store.ID{{7}}})
	for why, err := range map[string]error{"": held, "the server is away": errors.Join(
		fmt.Errorf("%w: the server is away", store.ErrUnavailable), held)} {
		var log strings.Builder
		o := quiet(func(store.Outcome) {})
		o.Log = slog.New(slog.NewTextHandler(&log, nil))
		synctest.Test(t, func(t *testing.T) {
			g := New(nil, o)
			part := batch{outcomes: []store.Outcome{outcome(7)}, ended: []time.Time{time.Now()}}
			time.Sleep(time.Minute)
			if rest := g.withoutHeld(part, []store.ID{{7}}, err); len(rest) != 0 {
				t.Errorf("%d outcomes count as written", len(rest))
			}
			if age := g.Age(); (age > 0) != (why != "") {
				t.Errorf("%q: the age is %v", why, age)
			}
		})
		if !strings.Contains(log.String(), why) || strings.Contains(log.String(), "WARN") != (why != "") {
			t.Errorf("%q: %s", why, log.String())
		}
	}
}

// held says that a user's transaction holds task 7, and stores the others.
type held struct {
	*ledger
	until time.Time
}

func (h *held) Finish(ctx context.Context, outcomes []store.Outcome) (lost []store.ID, err error) {
	if rest := slices.DeleteFunc(slices.Clone(outcomes), func(o store.Outcome) bool { return o.Task.ID[0] == 7 }); len(
		rest) < len(outcomes) &&
		time.Now().Before(h.until) {
		if len(rest) > 0 {
			lost, err = h.ledger.Finish(ctx, rest)
		}
		return lost, errors.Join(err, fmt.Errorf("finish: %w", &store.HeldError{Tasks: []store.ID{{7}}}))
	}
	return h.ledger.Finish(ctx, outcomes)
}

func TestWhatAUsersTransactionHoldsIsTriedAloneAndHoldsUpNothing(t *testing.T) {
	l := &ledger{accepted: map[store.ID]int{}}
	var mu sync.Mutex
	told := map[store.ID]int{}
	synctest.Test(t, func(t *testing.T) {
		h := &held{l, time.Now().Add(10 * time.Minute)}
		g := New(h, quiet(func(o store.Outcome) {
			mu.Lock()
			defer mu.Unlock()
			told[o.Task.ID]++
			if o.State != store.Completed {
				t.Errorf("task %v became %v", o.Task.ID, o.State)
			}
		}))
		done := make(chan struct{})
		go func() { g.Run(t.Context()); close(done) }()
		for i := range 100 {
			add(g, outcome(byte(i)))
			time.Sleep(50 * time.Millisecond)
			if l.taken(byte(i)) != 1 && i != 7 {
				t.Fatalf("outcome %d was held up", i)
			}
		}
		if g.Full() || g.Age() != 0 || l.taken(7) != 0 {
			t.Errorf("full: %v, age: %v, taken: %d", g.Full(), g.Age(), l.taken(7))
		}
		time.Sleep(10*time.Minute + longestPause)
		if l.taken(7) != 1 {
			t.Error("it was not written once nobody held it")
		}
		g.Close()
		<-done
	})
	if len(told) != 100 {
		t.Errorf("told of %d", len(told))
	}
	for id, n := range told {
		if n != 1 {
			t.Errorf("told %d times of %v", n, id)
		}
	}
}

func TestCloseWaitsForWhatIsHeldAndTheContextGivesItUp(t *testing.T) {
	for _, until := range []time.Duration{2 * time.Second, time.Hour} {
		l := &ledger{accepted: map[store.ID]int{}}
		synctest.Test(t, func(t *testing.T) {
			h := &held{l, time.Now().Add(until)}
			g := New(h, quiet(func(store.Outcome) {}))
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			done := make(chan struct{})
			go func() { g.Run(ctx); close(done) }()
			for _, n := range []byte{6, 7, 8} {
				add(g, outcome(n))
			}
			g.Close()
			<-done
		})
		if l.taken(6) != 1 || l.taken(8) != 1 || (l.taken(7) == 1) != (until < time.Minute) {
			t.Errorf("held for %v: %d, %d, %d were taken", until, l.taken(6), l.taken(7), l.taken(8))
		}
	}
}

func TestTheAgeIsThatOfTheOldestOutcomeAndNotOfTheLastWrite(t *testing.T) {
	l := &ledger{fail: func(call int, _ []store.Outcome) (before, after error) {
		if call == 1 || call > 20 {
			return nil, nil
		}
		return errors.New("away"), nil
	}}
	gathering(t, l, quiet(func(store.Outcome) {}), func(g *Gatherer) {
		add(g, outcome(1))
		time.Sleep(time.Hour) // it idles
		if age := g.Age(); age != 0 {
			t.Errorf("while it idles: %v", age)
		}
		claim := []store.Outcome{outcome(2), outcome(3)}
		var left atomic.Int64
		left.Store(2)
		for _, o := range claim {
			g.Add(o, time.Now(), &left)
		}
		time.Sleep(time.Second)
		if age := g.Age(); age < 900*time.Millisecond || age > time.Second {
			t.Errorf("after a second of failures: %v", age)
		}
		time.Sleep(time.Minute)
		if age := g.Age(); age != 0 {
			t.Errorf("when all is written: %v", age)
		}
	})
}
