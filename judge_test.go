package tusk_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
)

// absent is an error whose Error method panics on a nil pointer.
type absent struct{ text string }

func (e *absent) Error() string { return e.text }

// touchy is an error that panics when it is compared.
type touchy struct{}

func (touchy) Error() string { return "touchy" }

func (touchy) Is(error) bool { panic("do not compare me") }

// A worker calls the methods of the handler's error, and the function of WithRetry, after the handler has returned.
func TestCodeOfTheUserThatPanicsAfterTheHandlerFailsTheAttempt(t *testing.T) {
	delays := []time.Duration{time.Second}
	outOfRange := func(n int, _ error) time.Duration { return delays[n] }
	for name, c := range map[string]struct {
		err   error
		retry tusk.HandlerOption
		says  []string
	}{
		"Error":   {(*absent)(nil), tusk.WithTimeout(time.Hour), []string{"nil pointer", "*tusk_test.absent"}},
		"Is":      {touchy{}, tusk.WithTimeout(time.Hour), []string{"panic: do not compare me", "touchy"}},
		"Discard": {tusk.Discard((*absent)(nil)), tusk.WithTimeout(time.Hour), []string{"panic: ", "nil pointer"}},
		"WithRetry": {errors.New("disk is full"), tusk.WithRetry(outOfRange),
			[]string{"panic: ", "index out of range", "disk is full"}},
	} {
		inBubble(t, name, func(t *testing.T, s *shop) {
			tusk.Handle(s.mux, func(_ context.Context, t *tusk.Task[count]) error {
				if t.Attempt > 1 {
					return nil
				}
				return c.err
			}, c.retry)
			_, stop := s.work(&tusk.WorkerConfig{Concurrency: 1})
			id := s.enqueue(count{}, nil)
			task := s.await(id, tusk.StateCompleted)
			failed := task.Detail.Attempts[0]
			for _, want := range c.says {
				if !strings.Contains(failed.Error, want) {
					t.Errorf("error %q, want %q in it", failed.Error, want)
				}
			}
			if !strings.Contains(failed.Trace, "goroutine") || len(task.Detail.Attempts) != 2 {
				t.Errorf("%d attempts, trace %q", len(task.Detail.Attempts), failed.Trace)
			}
			s.stop(stop)
		})
	}
	inBubble(t, "one error of a batch", func(t *testing.T, s *shop) {
		tusk.HandleBatch(s.mux, func(_ context.Context, tasks []*tusk.Task[count]) []error {
			errs := make([]error, len(tasks))
			errs[0] = (*absent)(nil)
			return errs
		}, tusk.BatchOptions{Max: 2, Linger: time.Hour})
		first := s.enqueue(count{}, &tusk.Options{MaxAttempts: 1})
		second := s.enqueue(count{}, &tusk.Options{MaxAttempts: 1})
		_, stop := s.work(nil)
		states := map[tusk.State]int{}
		for _, id := range []tusk.ID{first, second} {
			for !s.get(id).State.Finished() {
				time.Sleep(time.Second)
			}
			states[s.get(id).State]++
		}
		if states[tusk.StateCompleted] != 1 || states[tusk.StateDiscarded] != 1 {
			t.Errorf("%v, want one that completed and one whose error panicked", states)
		}
		s.stop(stop)
	})
	inBubble(t, "the policy of a handler that hangs", func(t *testing.T, s *shop) {
		hangs := newDeaf(s, tusk.WithTimeout(time.Second), tusk.WithRetry(outOfRange))
		_, stop := s.work(&tusk.WorkerConfig{Concurrency: 1})
		id := s.enqueue(count{}, nil)
		failed := s.await(id, tusk.StateCompleted).Detail.Attempts[0]
		for _, want := range []string{"hung: ", "index out of range", "timed out after 1s"} {
			if !strings.Contains(failed.Error, want) {
				t.Errorf("error %q, want %q in it", failed.Error, want)
			}
		}
		if !strings.Contains(failed.Trace, "handleUntilReleased") {
			t.Errorf("the stack of the handler is not in %s", failed.Trace)
		}
		close(hangs.release)
		s.stop(stop)
	})
}
