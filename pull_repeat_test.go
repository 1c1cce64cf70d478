package tusk_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

// lateAnswer takes a second to answer that attempts have ended, or the caller's context's error.
type lateAnswer struct {
	store.Store
	fails atomic.Int64 // this many ends fail before the database has them
	left  atomic.Int64 // workers that signed off
}

func (l *lateAnswer) Extend(ctx context.Context, b store.Beat) ([]store.Stop, error) {
	if b.TTL == 0 {
		l.left.Add(1)
	}
	return l.Store.Extend(ctx, b)
}

func (l *lateAnswer) Finish(ctx context.Context, outcomes []store.Outcome) ([]store.ID, error) {
	if l.fails.Add(-1) >= 0 {
		return nil, errCut
	}
	lost, err := l.Store.Finish(ctx, outcomes)
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(time.Second):
		return lost, err
	}
}

func (l *lateAnswer) Unwrap() store.Store { return l.Store }

func TestAVerdictMayBeRepeated(t *testing.T) {
	for name, others := range map[string]bool{"to the same puller": false, "to one that has not lent the task": true} {
		inBubble(t, name, func(t *testing.T, s *shop) {
			s.client = clientOf(t, &lateAnswer{Store: s.store})
			lender, end := s.pull()
			defer end()
			p := lender
			if others {
				var end func()
				p, end = s.pull()
				defer end()
			}
			id := s.enqueue(count{}, nil)
			verdict := []tusk.Verdict{{Receipt: lend(t, lender, 1)[0]}}
			first := make(chan error, 1)
			ctx, leave := context.WithCancel(t.Context())
			go func() {
				_, err := p.Finish(ctx, verdict)
				first <- err
			}()
			time.Sleep(500 * time.Millisecond)
			leave()                                        // the caller gives up
			results, err := p.Finish(t.Context(), verdict) // and repeats it while the first is under way
			if err != nil || results[0] != nil {
				t.Errorf("repeated: %v %v", results, err)
			}
			<-first
			other := tusk.Verdict{Receipt: verdict[0].Receipt, Err: errors.New("x")}
			results, err = p.Finish(t.Context(), append(verdict, other))
			if err != nil || results[0] != nil || !errors.Is(results[1], tusk.ErrLeaseLost) {
				t.Errorf("once more, and another verdict: %v %v", results, err)
			}
			if got := s.get(id).State; got != store.Completed {
				t.Errorf("the task is %v", got)
			}
		})
	}
}

func TestTasksAreHandedBackThoughTheDatabaseFailsForAMoment(t *testing.T) {
	inBubble(t, "and are not when it is away", func(t *testing.T, s *shop) {
		for _, fails := range []int{3, 1e6} {
			want := map[int]store.State{3: store.Available, 1e6: store.Running}[fails]
			late := &lateAnswer{Store: s.store}
			s.client = clientOf(t, late)
			p := s.client.NewPuller()
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- p.Run(ctx) }()
			time.Sleep(2 * time.Second)
			id := s.enqueue(count{}, &tusk.Options{Queue: fmt.Sprint("q", fails)})
			if lent, err := p.Claim(ctx, tusk.Pull{Queues: []string{fmt.Sprint("q", fails)}}); err != nil || len(lent) != 1 {
				t.Fatal(lent, err)
			}
			late.fails.Store(int64(fails))
			stop()
			err := <-done
			if left := late.left.Load(); (err == nil) != (fails == 3) || (left == 1) != (fails == 3) {
				t.Errorf("after %d failures: %v; %d workers signed off", fails, err, left)
			}
			if got := s.get(id); got.State != want {
				t.Errorf("after %d failures the task is %v, with %+v", fails, got.State, got.Detail.Attempts)
			}
		}
	})
}

func TestProgressThatIsNoNumberIsNone(t *testing.T) {
	inBubble(t, "of a lent task", func(t *testing.T, s *shop) {
		p, end := s.pull()
		defer end()
		id := s.enqueue(count{}, nil)
		r := lend(t, p, 1)[0]
		p.Extend(t.Context(), tusk.Extension{Receipt: r, Lease: time.Minute,
			Progress: &store.Progress{Percent: math.NaN(), Message: "m"}})
		time.Sleep(3 * time.Second)
		if got := s.get(id).Detail.Progress; got == nil || got.Percent != 0 || got.Message != "m" {
			t.Errorf("%+v", got)
		}
	})
}

// noAnswer is a store that loses the answers of as many ends as left says.
type noAnswer struct {
	store.Store
	left atomic.Int64
}

func (n *noAnswer) Unwrap() store.Store { return n.Store }

func (n *noAnswer) Finish(ctx context.Context, outcomes []store.Outcome) ([]store.ID, error) {
	lost, err := n.Store.Finish(ctx, outcomes)
	if n.left.Add(-1) >= 0 {
		return nil, errCut
	}
	return lost, err
}

// partAnswer is a store of two parts. The answer of the second, which ends the last outcome of a call, is lost once.
type partAnswer struct {
	store.Store
	lost atomic.Bool
}

func (p *partAnswer) Unwrap() store.Store { return p.Store }

func (p *partAnswer) Finish(ctx context.Context, outcomes []store.Outcome) ([]store.ID, error) {
	lost, err := p.Store.Finish(ctx, outcomes)
	if err == nil && p.lost.CompareAndSwap(false, true) {
		last := outcomes[len(outcomes)-1].Task.ID
		err = errors.Join(&store.HeldError{Tasks: []store.ID{last}}, store.ErrUnavailable)
	}
	return lost, err
}

func TestAVerdictThatWasLeftOutForALostAnswerMayBeRepeated(t *testing.T) {
	inBubble(t, "one of two", func(t *testing.T, s *shop) {
		s.client = clientOf(t, &partAnswer{Store: s.store})
		p, end := s.pull()
		defer end()
		var verdicts []tusk.Verdict
		for range 2 {
			s.enqueue(count{}, nil)
		}
		for _, r := range lend(t, p, 2) {
			verdicts = append(verdicts, tusk.Verdict{Receipt: r})
		}
		if _, err := p.Finish(t.Context(), verdicts); err == nil {
			t.Fatal("the answer was not lost")
		}
		results, err := p.Finish(t.Context(), verdicts)
		if err != nil || results[0] != nil || results[1] != nil {
			t.Errorf("repeated: %v, %v", results, err)
		}
	})
}

func TestAVerdictWhoseAnswerWasLostMayBeRepeated(t *testing.T) {
	for name, c := range map[string]struct {
		err       error
		ephemeral bool
	}{
		"a success":                 {nil, false},
		"a success that is deleted": {nil, true},
		"a failure":                 {errors.New("boom"), false},
		"a snooze":                  {tusk.Snooze(time.Hour), false},
		"a task that is given back": {tusk.ErrShutdown, false},
	} {
		inBubble(t, name, func(t *testing.T, s *shop) {
			lossy := &noAnswer{Store: s.store}
			s.client = clientOf(t, lossy)
			p, end := s.pull()
			defer end()
			s.enqueue(count{}, &tusk.Options{Ephemeral: c.ephemeral})
			v := tusk.Verdict{Receipt: lend(t, p, 1)[0], Err: c.err}
			lossy.left.Store(1)
			if _, err := p.Finish(t.Context(), []tusk.Verdict{v}); err == nil {
				t.Fatal("the answer was not lost")
			}
			other := tusk.Verdict{Receipt: v.Receipt, Err: errors.New("another")}
			results, err := p.Finish(t.Context(), []tusk.Verdict{v, other})
			if err != nil || results[0] != nil || !errors.Is(results[1], tusk.ErrLeaseLost) {
				t.Errorf("repeated: %v, %v", results, err)
			}
			if results, err := p.Finish(t.Context(), []tusk.Verdict{v}); err != nil || results[0] != nil {
				t.Errorf("once more: %v, %v", results, err)
			}
		})
	}
	inBubble(t, "and is refused if it was not stored", func(t *testing.T, s *shop) {
		late := &lateAnswer{Store: s.store}
		s.client = clientOf(t, late)
		p, end := s.pull()
		defer end()
		s.enqueue(count{}, nil)
		v := tusk.Verdict{Receipt: lend(t, p, 1)[0]}
		late.fails.Store(1)
		if _, err := p.Finish(t.Context(), []tusk.Verdict{v}); err == nil {
			t.Fatal("it was stored")
		}
		time.Sleep(time.Minute) // the lease has ended
		results, err := p.Finish(t.Context(), []tusk.Verdict{v})
		if err != nil || !errors.Is(results[0], tusk.ErrLeaseLost) {
			t.Errorf("repeated: %v, %v", results, err)
		}
	})
}

func TestAClaimInProgressIsHandedBackBeforeThePullerSignsOff(t *testing.T) {
	inBubble(t, "though the database fails for a moment", func(t *testing.T, s *shop) {
		late := &lateAnswer{Store: s.store}
		h := newHeld(late)
		s.client = clientOf(t, h)
		p, end := s.pull()
		h.holds.Store(true)
		id := s.enqueue(count{}, nil)
		got := make(chan error, 1)
		go func() {
			lent, err := p.Claim(context.Background(), tusk.Pull{Queues: []string{tusk.DefaultQueue}})
			if len(lent) > 0 {
				t.Errorf("lent %+v", lent)
			}
			got <- err
		}()
		<-h.claims
		late.fails.Store(1)
		time.AfterFunc(3*time.Second, func() { close(h.goOn) })
		end()
		if task := s.get(id); task.State != store.Available || task.Attempt != 0 || late.left.Load() != 1 {
			t.Errorf("the task is %v, attempt %d; %d workers signed off", task.State, task.Attempt, late.left.Load())
		}
		<-got
	})
}
