package tusk_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

// ringing is a store that hears of everything at once, except what deaf removes from a hint.
type ringing struct {
	store.Store
	deaf  func(h *store.Hint)
	turns atomic.Int64 // looks for tasks that wait for a turn
	looks atomic.Int64 // looks for due tasks
}

func (r *ringing) Listen(ctx context.Context, wake func(store.Hint)) error {
	engine, _ := store.As[store.Notifier](r.Store)
	return engine.Listen(ctx, func(h store.Hint) {
		if r.deaf != nil {
			r.deaf(&h)
		}
		if !h.Open() {
			wake(h)
		}
	})
}

func (r *ringing) Prompt() bool { return true }

func (r *ringing) Turns(ctx context.Context, term int64, groups, heads int) ([]store.Turns, error) {
	r.turns.Add(1)
	return r.Store.Turns(ctx, term, groups, heads)
}

func (r *ringing) Admit(ctx context.Context, term int64, limit int) (store.Admitted, error) {
	r.looks.Add(1)
	return r.Store.Admit(ctx, term, limit)
}

// started runs a worker on such a store. It lets the worker idle for a while before each of some tasks, and returns the
// longest time between a task being due and running.
func started(
	t *testing.T, r *ringing, limits *tusk.Limits, o func(i int) (*tusk.Options, time.Duration),
) (late time.Duration) {
	r.Store = memory.New()
	s := &shop{t: t, store: r, mux: tusk.NewMux(), client: clientOf(t, r)}
	ran := make(chan time.Time, 1)
	tusk.HandleFunc(s.mux, func(context.Context, count) error { ran <- time.Now(); return nil })
	if limits != nil {
		s.limit(*limits)
	}
	_, stop := s.work(nil)
	time.Sleep(30 * time.Second)
	for i := range 20 {
		time.Sleep(11*time.Second + time.Duration(i)*53*time.Millisecond)
		options, due := o(i)
		began := time.Now()
		s.enqueue(count{}, options)
		late = max(late, (<-ran).Sub(began)-due)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	return late
}

func TestWhoeverLeadsIsToldOfTasks(t *testing.T) {
	now := func(int) (*tusk.Options, time.Duration) { return nil, 0 }
	soon := func(i int) (*tusk.Options, time.Duration) {
		delay := time.Duration(100+i*71) * time.Millisecond
		return &tusk.Options{Delay: delay}, delay
	}
	limit, none := &tusk.Limits{Concurrency: 3}, (*tusk.Limits)(nil)
	for name, c := range map[string]struct {
		limits *tusk.Limits
		o      func(int) (*tusk.Options, time.Duration)
	}{
		"of a limited queue": {limit, now}, "with a delay": {none, soon}, "of a limited queue, with a delay": {limit, soon},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if late := started(t, &ringing{}, c.limits, c.o); late > 30*time.Millisecond {
					t.Errorf("a task is %v late", late)
				}
			})
		})
		t.Run(name+", unheard", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lost := func(h *store.Hint) { h.Turns, h.Due, h.Soon = false, false, false }
				if late := started(t, &ringing{deaf: lost}, c.limits, c.o); late > 2100*time.Millisecond {
					t.Errorf("a task is %v late", late)
				}
			})
		})
	}
}

func TestATaskThatIsTriedAgainSoonIsNotLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &ringing{Store: memory.New()}
		s := &shop{t: t, store: r, mux: tusk.NewMux(), client: clientOf(t, r)}
		var at []time.Time
		done := make(chan struct{})
		tusk.HandleFunc(s.mux, func(context.Context, count) error {
			if at = append(at, time.Now()); len(at) < 5 {
				return tusk.RetryAfter(300*time.Millisecond, errors.New("planned"))
			}
			close(done)
			return nil
		})
		_, stop := s.work(nil)
		time.Sleep(33 * time.Second)
		s.enqueue(count{}, nil)
		<-done
		for i := range at[1:] {
			if pause := at[i+1].Sub(at[i]); pause < 300*time.Millisecond || pause > 340*time.Millisecond {
				t.Errorf("attempt %d comes %v after the one before", i+2, pause)
			}
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// A leader that hears of tasks at once need not look for them.
func TestWhoeverLeadsAndIsToldOfTasksLooksSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &ringing{Store: memory.New()}
		s := &shop{t: t, store: r, mux: tusk.NewMux(), client: clientOf(t, r)}
		tusk.HandleFunc(s.mux, func(context.Context, count) error { return nil })
		s.limit(tusk.Limits{Concurrency: 1})
		_, stop := s.work(nil)
		time.Sleep(time.Minute)
		turns, looks := r.turns.Load(), r.looks.Load()
		time.Sleep(time.Minute)
		if turns, looks = r.turns.Load()-turns, r.looks.Load()-looks; turns > 61 || looks > 61 {
			t.Errorf("in an idle minute it looks %d times at who waits for a turn, and %d times at what is due", turns, looks)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}
