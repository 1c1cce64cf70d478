package finish

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
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

func outcome(n byte) store.Outcome {
	return store.Outcome{Task: &store.Task{ID: store.ID{n}}, State: store.Completed}
}

// add adds an outcome that is alone in its claim.
func add(g *Gatherer, o store.Outcome) {
	var left atomic.Int64
	left.Store(1)
	g.Add(o, time.Now(), &left)
}

// gather sends n outcomes through a gatherer and returns it after its end.
func gather(t *testing.T, l *ledger, n int) (written []store.ID) {
	l.accepted = map[store.ID]int{}
	synctest.Test(t, func(t *testing.T) {
		g := New(l, Options{Largest: 10, Linger: 2 * time.Millisecond, Deadline: time.Second,
			Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
			Done: func(outcomes []store.Outcome, _ map[store.ID]bool) {
				for _, o := range outcomes {
					written = append(written, o.Task.ID)
				}
			}})
		done := make(chan struct{})
		go func() { g.Run(context.Background()); close(done) }()
		for i := range n {
			add(g, outcome(byte(i)))
		}
		time.Sleep(time.Minute)
		g.Close()
		<-done
		add(g, outcome(255)) // after the end: dropped, not blocked
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
	l := ledger{fail: poisoned, accepted: map[store.ID]int{}}
	var discarded []store.ID
	synctest.Test(t, func(t *testing.T) {
		g := New(&l, Options{Largest: 10, Linger: time.Millisecond, Deadline: time.Second,
			Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
			Done: func(outcomes []store.Outcome, _ map[store.ID]bool) {
				for _, o := range outcomes {
					if o.State == store.Discarded {
						discarded = append(discarded, o.Task.ID)
					}
				}
			}})
		done := make(chan struct{})
		go func() { g.Run(context.Background()); close(done) }()
		for i := range 20 {
			add(g, outcome(byte(i)))
		}
		for i := range 10 {
			time.Sleep(10 * time.Second)
			add(g, outcome(byte(100+i)))
		}
		time.Sleep(time.Minute)
		g.Close()
		<-done
	})
	if len(l.accepted) != 30 || len(discarded) != 1 || discarded[0] != (store.ID{7}) {
		t.Errorf("accepted %d, discarded %v", len(l.accepted), discarded)
	}
}

func TestAnOutcomeThatWasSetAsideIsWrittenWhileOthersKeepComing(t *testing.T) {
	l := ledger{accepted: map[store.ID]int{}, fail: func(call int, _ []store.Outcome) (before, after error) {
		if call <= 2 {
			return errors.New("a blip"), nil
		}
		return nil, nil
	}}
	synctest.Test(t, func(t *testing.T) {
		g := New(&l, Options{Largest: 10, Linger: time.Millisecond, Deadline: time.Second,
			Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Done: func([]store.Outcome, map[store.ID]bool) {}})
		done := make(chan struct{})
		go func() { g.Run(context.Background()); close(done) }()
		add(g, outcome(7))
		for i := range 100 {
			time.Sleep(100 * time.Millisecond)
			add(g, outcome(byte(100+i)))
		}
		l.mu.Lock()
		if l.accepted[store.ID{7}] != 1 {
			t.Error("still set aside")
		}
		l.mu.Unlock()
		g.Close()
		<-done
	})
}

func TestALockThatIsHeldForMinutesDiscardsNothing(t *testing.T) {
	var start time.Time
	l := ledger{accepted: map[store.ID]int{}, fail: func(_ int, outcomes []store.Outcome) (before, after error) {
		if time.Since(start) < 5*time.Minute && slices.ContainsFunc(outcomes, func(o store.Outcome) bool { return o.Task.ID == store.ID{7} }) {
			return fmt.Errorf("finish: %w", context.DeadlineExceeded), nil
		}
		return nil, nil
	}}
	states := map[store.State]int{}
	synctest.Test(t, func(t *testing.T) {
		start = time.Now()
		g := New(&l, Options{Largest: 10, Linger: time.Millisecond, Deadline: time.Second,
			Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
			Done: func(outcomes []store.Outcome, _ map[store.ID]bool) {
				for _, o := range outcomes {
					states[o.State]++
				}
			}})
		done := make(chan struct{})
		go func() { g.Run(context.Background()); close(done) }()
		for i := range 60 {
			add(g, outcome(byte(i)))
			time.Sleep(10 * time.Second)
		}
		g.Close()
		<-done
	})
	if states[store.Completed] != 60 || len(states) != 1 {
		t.Error(states)
	}
}

func TestAnOutageDiscardsNothing(t *testing.T) {
	start := time.Time{}
	l := ledger{accepted: map[store.ID]int{}, fail: func(int, []store.Outcome) (before, after error) {
		if time.Since(start) < time.Hour {
			return errors.New("down"), nil
		}
		return nil, nil
	}}
	completed := 0
	synctest.Test(t, func(t *testing.T) {
		start = time.Now()
		g := New(&l, Options{Largest: 10, Linger: time.Millisecond, Deadline: time.Second,
			Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
			Done: func(outcomes []store.Outcome, _ map[store.ID]bool) {
				for _, o := range outcomes {
					if o.State == store.Completed {
						completed++
					}
				}
			}})
		done := make(chan struct{})
		go func() { g.Run(context.Background()); close(done) }()
		for i := range 20 {
			add(g, outcome(byte(i)))
		}
		time.Sleep(2 * time.Hour)
		g.Close()
		<-done
	})
	if completed != 20 {
		t.Errorf("%d of 20 completed", completed)
	}
}

func TestOutcomesOfOneClaimAreWrittenTogetherOrAfterAWhile(t *testing.T) {
	l := ledger{accepted: map[store.ID]int{}}
	synctest.Test(t, func(t *testing.T) {
		g := New(&l, Options{Largest: 100, Linger: 2 * time.Millisecond, Deadline: time.Second,
			Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Done: func([]store.Outcome, map[store.ID]bool) {}})
		done := make(chan struct{})
		go func() { g.Run(context.Background()); close(done) }()
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
		l.mu.Lock()
		if l.accepted[store.ID{10}] != 1 {
			t.Error("waits for the others of its claim for ever")
		}
		l.mu.Unlock()
		g.Close()
		<-done
	})
}
