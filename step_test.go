package tusk_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

// ran counts calls by name.
type ran struct {
	mu    sync.Mutex
	calls []string
}

func (r *ran) add(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, name)
}

func (r *ran) are(t *testing.T, want string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if got := strings.Join(r.calls, " "); got != want {
		t.Errorf("ran %s, want %s", got, want)
	}
}

// step is a step whose result is its name.
func step(ctx context.Context, t *tusk.Task[count], r *ran, name string) error {
	got, err := tusk.Step(ctx, t, name, func(context.Context) (string, error) {
		r.add(name)
		return name, nil
	})
	if err == nil && got != name {
		err = fmt.Errorf("step %s returned %s", name, got)
	}
	return err
}

var soon = &tusk.Options{Backoff: tusk.ConstantBackoff(time.Second)}

func TestStepsRunOncePerTask(t *testing.T) {
	const all = "also if attempts fail, snooze or are handed back, and again after a run that completed"
	inBubble(t, all, func(t *testing.T, s *shop) {
		var r ran
		ends := []error{errors.New("no"), tusk.Snooze(time.Minute), tusk.Snooze(0), nil, nil}
		tusk.Handle(s.mux, func(ctx context.Context, t *tusk.Task[count]) error {
			end := ends[0]
			ends = ends[1:]
			for _, name := range []string{"a", fmt.Sprint("only-", len(ends)), "b"} {
				if err := step(ctx, t, &r, name); err != nil {
					return err
				}
			}
			return end
		})
		id := s.enqueue(count{}, soon)
		_, stop := s.work(nil)
		s.await(id, tusk.StateCompleted)
		r.are(t, "a only-4 b only-3 only-2 only-1")
		if err := s.client.Retry(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		s.await(id, tusk.StateCompleted)
		s.stop(stop)
		r.are(t, "a only-4 b only-3 only-2 only-1 a only-0 b")
	})
	inBubble(t, "a step that fails or panics runs again", func(t *testing.T, s *shop) {
		var r ran
		left := 2
		tusk.Handle(s.mux, func(ctx context.Context, t *tusk.Task[count]) error {
			if err := step(ctx, t, &r, "a"); err != nil {
				return err
			}
			flaky := func(context.Context) (int, error) {
				r.add("flaky")
				if left--; left == 0 {
					panic("flaky")
				}
				return 7, map[bool]error{true: errors.New("flaky")}[left > 0]
			}
			_, err := tusk.Step(ctx, t, "flaky", flaky)
			if err != nil { // in the same attempt
				_, err = tusk.Step(ctx, t, "flaky", flaky)
			}
			return err
		})
		id := s.enqueue(count{}, soon)
		_, stop := s.work(nil)
		s.await(id, tusk.StateCompleted)
		s.stop(stop)
		r.are(t, "a flaky flaky flaky")
	})
}

func TestStepsRunConcurrently(t *testing.T) {
	inBubble(t, "of many tasks", func(t *testing.T, s *shop) {
		var r ran
		tusk.Handle(s.mux, func(ctx context.Context, t *tusk.Task[count]) error {
			errs := make(chan error, 20)
			for i := range 20 {
				go func() { errs <- step(ctx, t, &r, fmt.Sprintf("%s-%d", t.ID, i)) }()
			}
			var all error
			for range 20 {
				all = errors.Join(all, <-errs)
			}
			if t.Attempt == 1 {
				return errors.Join(all, errors.New("again"))
			}
			return all
		})
		_, stop := s.work(&tusk.WorkerConfig{Concurrency: 20})
		var ids []tusk.ID
		for range 20 {
			ids = append(ids, s.enqueue(count{}, soon))
		}
		for _, id := range ids {
			s.await(id, tusk.StateCompleted)
		}
		s.stop(stop)
		if len(r.calls) != 20*20 {
			t.Errorf("%d steps ran, want %d", len(r.calls), 20*20)
		}
	})
}

// unreadable is a store whose tasks cannot be listed at times.
type unreadable struct {
	store.Store
	off atomic.Bool
}

func (u *unreadable) Unwrap() store.Store { return u.Store }

func (u *unreadable) List(ctx context.Context, f store.Filter) ([]store.Task, error) {
	if u.off.Load() {
		return nil, errCut
	}
	return u.Store.List(ctx, f)
}

func TestAStepIsStoredBeforeItReturns(t *testing.T) {
	inBubble(t, "also if the database is away for a while", func(t *testing.T, s *shop) {
		c := &cut{Store: s.store}
		s.client = clientOf(t, c)
		var r ran
		var took time.Duration
		tusk.Handle(s.mux, func(ctx context.Context, t *tusk.Task[count]) error {
			if err := step(ctx, t, &r, "a"); err != nil {
				return err
			}
			c.off.Store(true)
			time.AfterFunc(5*time.Second, func() { c.off.Store(false) })
			began := time.Now()
			err := step(ctx, t, &r, "b")
			took = time.Since(began)
			return err
		})
		id := s.enqueue(count{}, soon)
		_, stop := s.work(nil)
		task := s.await(id, tusk.StateCompleted)
		s.stop(stop)
		if r.are(t, "a b"); took < 5*time.Second || took > 10*time.Second {
			t.Errorf("the step took %v", took)
		}
		var stored []string
		for _, l := range task.Detail.Logs {
			stored = append(stored, l.Level+" "+l.Text)
		}
		if got := strings.Join(stored, ", "); got != `STEP a "a", STEP b "b", STEP `+store.StepsEnd {
			t.Errorf("%s", got)
		}
	})
	inBubble(t, "also if the database is away when the first one begins", func(t *testing.T, s *shop) {
		c, reader := &unreadable{Store: s.store}, s.client
		var r ran
		tusk.Handle(s.mux, func(ctx context.Context, t *tusk.Task[count]) error {
			c.off.Store(true)
			time.AfterFunc(5*time.Second, func() { c.off.Store(false) })
			return step(ctx, t, &r, "a")
		})
		s.client = clientOf(t, c)
		_, stop := s.work(nil)
		s.client = reader
		id := s.enqueue(count{}, &tusk.Options{MaxAttempts: 1})
		s.await(id, tusk.StateCompleted)
		s.stop(stop)
		r.are(t, "a")
	})
	inBubble(t, "also if the first call did not wait for that", func(t *testing.T, s *shop) {
		c := &cut{Store: s.store}
		s.client = clientOf(t, c)
		var r ran
		var first, second error
		var took time.Duration
		tusk.Handle(s.mux, func(ctx context.Context, t *tusk.Task[count]) error {
			c.off.Store(true)
			time.AfterFunc(5*time.Second, func() { c.off.Store(false) })
			began := time.Now()
			short, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			if first = step(short, t, &r, "a"); first == nil {
				return nil
			}
			second = step(ctx, t, &r, "a")
			took = time.Since(began)
			short, cancel = context.WithCancel(ctx)
			cancel()
			return errors.Join(step(short, t, &r, "b"), tusk.Discard(errors.New("ended")))
		})
		id := s.enqueue(count{}, soon)
		_, stop := s.work(nil)
		s.await(id, tusk.StateDiscarded)
		s.stop(stop)
		if r.are(t, "a"); !errors.Is(first, context.DeadlineExceeded) || second != nil || took < 5*time.Second {
			t.Errorf("%v, then %v after %v", first, second, took)
		}
	})
	inBubble(t, "or fails when the lease is lost", func(t *testing.T, s *shop) {
		c := &cut{Store: s.store}
		s.client = clientOf(t, c)
		problem := make(chan error, 1)
		tusk.Handle(s.mux, func(ctx context.Context, t *tusk.Task[count]) error {
			c.off.Store(true)
			problem <- step(ctx, t, new(ran), "a")
			return nil
		})
		s.enqueue(count{}, soon)
		_, stop := s.work(nil)
		if err := <-problem; !errors.Is(err, tusk.ErrLeaseLost) {
			t.Errorf("%v", err)
		}
		c.off.Store(false)
		s.stop(stop)
	})
}

func TestBadStepsAreRefused(t *testing.T) {
	inBubble(t, "and the error says why", func(t *testing.T, s *shop) {
		problems := map[string]error{}
		large := strings.Repeat("x", tusk.MaxStepBytes/2)
		tusk.Handle(s.mux, func(ctx context.Context, t *tusk.Task[count]) error {
			try := func(what, name string, result any) {
				_, err := tusk.Step(ctx, t, name, func(context.Context) (any, error) { return result, nil })
				problems[what] = err
			}
			try("name", "No name", 1)
			try("none", "channel", make(chan int))
			try("first", "twice", 1)
			try("twice", "twice", 1)
			try("large", "large", large)
			try("larger", "larger", large)
			return nil
		})
		id := s.enqueue(count{}, nil)
		_, stop := s.work(nil)
		s.await(id, tusk.StateCompleted)
		s.stop(stop)
		for what, code := range map[string]string{"name": "invalid_name", "none": "invalid_json", "first": "",
			"twice": "duplicate", "large": "", "larger": "too_large"} {
			invalid := new(tusk.InvalidError)
			err := problems[what]
			if _ = errors.As(err, &invalid); invalid.Code != code || code == "" && err != nil {
				t.Errorf("%s: %v, want %s", what, err, code)
			}
		}
	})
	none := func(context.Context) (int, error) { return 0, nil }
	if _, err := tusk.Step(t.Context(), &tusk.Task[count]{}, "a", none); err == nil {
		t.Error("a step of a task without an attempt")
	}
}

// The step that would be one too many does not run.
func TestTooManySteps(t *testing.T) {
	inBubble(t, "", func(t *testing.T, s *shop) {
		var r ran
		var problem error
		tusk.Handle(s.mux, func(ctx context.Context, t *tusk.Task[count]) error {
			var g sync.WaitGroup
			for i := range tusk.MaxSteps {
				g.Go(func() { _ = step(ctx, t, new(ran), fmt.Sprint("step-", i)) })
			}
			g.Wait()
			problem = step(ctx, t, &r, "last")
			return nil
		})
		id := s.enqueue(count{}, nil)
		_, stop := s.work(nil)
		s.await(id, tusk.StateCompleted)
		s.stop(stop)
		invalid := new(tusk.InvalidError)
		if r.are(t, ""); !errors.As(problem, &invalid) || invalid.Code != "too_large" {
			t.Errorf("%v", problem)
		}
	})
}

// A result that changes its type between two attempts is an error of the program.
func TestAStoredResultOfAnotherTypeIsAnError(t *testing.T) {
	inBubble(t, "", func(t *testing.T, s *shop) {
		var problem error
		tusk.Handle(s.mux, func(ctx context.Context, t *tusk.Task[count]) error {
			if t.Attempt == 1 {
				_, _ = tusk.Step(ctx, t, "a", func(context.Context) (string, error) { return "x", nil })
				return errors.New("again")
			}
			_, problem = tusk.Step(ctx, t, "a", func(context.Context) (int, error) { return 1, nil })
			return nil
		})
		id := s.enqueue(count{}, soon)
		_, stop := s.work(nil)
		s.await(id, tusk.StateCompleted)
		s.stop(stop)
		if problem == nil || !strings.Contains(problem.Error(), "not of type int") {
			t.Errorf("%v", problem)
		}
	})
}
