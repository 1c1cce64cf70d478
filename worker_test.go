package tusk_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

type count struct{ N int }

func (count) Kind() string { return "count" }

// shop is a client, a mux and as many workers as a test starts, on one store in
// memory. Tests run in a synctest bubble: hours pass at once.
type shop struct {
	t      *testing.T
	store  store.Store
	client *tusk.Client
	mux    *tusk.Mux
}

func newShop(t *testing.T) *shop {
	s := &shop{t: t, store: memory.New(), mux: tusk.NewMux()}
	s.client = clientOf(t, s.store)
	return s
}

func clientOf(t testing.TB, s store.Store) *tusk.Client {
	client, err := tusk.NewClient(s, &tusk.ClientConfig{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// work starts a worker and returns what stops it and waits.
func (s *shop) work(config *tusk.WorkerConfig) (w *tusk.Worker, stop func() error) {
	s.t.Helper()
	w, err := tusk.NewWorker(s.client, s.mux, config)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	return w, func() error { cancel(); return <-done }
}

func (s *shop) enqueue(args tusk.Args, o *tusk.Options) tusk.ID {
	s.t.Helper()
	r, err := s.client.Enqueue(context.Background(), args, o)
	if err != nil {
		s.t.Fatal(err)
	}
	return r.ID
}

func (s *shop) get(id tusk.ID) *tusk.TaskInfo {
	s.t.Helper()
	task, err := s.client.Get(context.Background(), id)
	if err != nil {
		s.t.Fatal(err)
	}
	return task
}

// await lets time pass until the task is in the state.
func (s *shop) await(id tusk.ID, state tusk.State) *tusk.TaskInfo {
	s.t.Helper()
	for range 100000 {
		if task := s.get(id); task.State == state {
			return task
		}
		time.Sleep(200 * time.Millisecond)
	}
	s.t.Fatalf("task is %v, never became %v", s.get(id).State, state)
	return nil
}

func (s *shop) stop(stop func() error) {
	s.t.Helper()
	if err := stop(); err != nil {
		s.t.Error(err)
	}
}

func inBubble(t *testing.T, name string, f func(t *testing.T, s *shop)) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { f(t, newShop(t)) })
	})
}

func TestHandlers(t *testing.T) {
	inBubble(t, "a task runs with its args and completes", func(t *testing.T, s *shop) {
		var got atomic.Int64
		tusk.Handle(s.mux, func(_ context.Context, t *tusk.Task[count]) error { got.Store(int64(t.Args.N)); return nil })
		_, stop := s.work(nil)
		id := s.enqueue(count{7}, &tusk.Options{Metadata: map[string]string{"by": "test"}})
		task := s.await(id, tusk.StateCompleted)
		if got.Load() != 7 || task.Attempt != 1 || task.Metadata["by"] != "test" || task.MaxAttempts != 25 {
			t.Errorf("%d, %+v", got.Load(), task)
		}
		s.stop(stop)
	})
	inBubble(t, "a failed task is retried until it gives up, with every error kept", func(t *testing.T, s *shop) {
		tusk.HandleFunc(s.mux, func(context.Context, count) error { return errors.New("boom") })
		_, stop := s.work(nil)
		id := s.enqueue(count{}, &tusk.Options{MaxAttempts: 4, Backoff: tusk.LinearBackoff(5 * time.Minute)})
		task := s.await(id, tusk.StateDiscarded)
		if len(task.Detail.Attempts) != 4 || task.Reason != "gave up after 4 attempts" {
			t.Errorf("%d attempts, %q", len(task.Detail.Attempts), task.Reason)
		}
		for i, a := range task.Detail.Attempts {
			if a.Error != "boom" || a.Number != i+1 {
				t.Errorf("attempt %d: %+v", i, a)
			}
		}
		if took := task.FinishedAt.Sub(task.EnqueuedAt); took < 30*time.Minute || took > 31*time.Minute {
			t.Errorf("5 + 10 + 15 minutes of backoff took %v", took)
		}
		s.stop(stop)
	})
	inBubble(t, "a panic and a Goexit are failures", func(t *testing.T, s *shop) {
		tusk.HandleFunc(s.mux, func(_ context.Context, a count) error {
			if a.N == 0 {
				panic("argh")
			}
			runtime.Goexit()
			return nil
		})
		_, stop := s.work(&tusk.WorkerConfig{Concurrency: 1})
		first := s.enqueue(count{0}, &tusk.Options{MaxAttempts: 1})
		second := s.enqueue(count{1}, &tusk.Options{MaxAttempts: 1})
		a := s.await(first, tusk.StateDiscarded).Detail.Attempts[0]
		b := s.await(second, tusk.StateDiscarded).Detail.Attempts[0]
		if a.Error != "panic: argh" || !strings.Contains(a.Trace, "worker_test.go") || !strings.Contains(b.Error, "Goexit") {
			t.Errorf("%+v %+v", a, b)
		}
		s.stop(stop)
	})
	inBubble(t, "snooze, cancel, discard and retry-after say what they mean", func(t *testing.T, s *shop) {
		var calls atomic.Int64
		tusk.HandleFunc(s.mux, func(_ context.Context, a count) error {
			switch {
			case a.N == 0 && calls.Add(1) == 1:
				return tusk.Snooze(time.Hour)
			case a.N == 1:
				return tusk.Cancel("not needed")
			case a.N == 2:
				return tusk.Discard(errors.New("hopeless"))
			case a.N == 3 && calls.Add(1) == 3:
				return tusk.RetryAfter(2*time.Hour, errors.New("busy"))
			}
			return nil
		})
		_, stop := s.work(nil)
		snoozed := s.await(s.enqueue(count{0}, nil), tusk.StateCompleted)
		if d := snoozed.FinishedAt.Sub(snoozed.EnqueuedAt); snoozed.Attempt != 1 || d < time.Hour || d > time.Hour+time.Minute {
			t.Errorf("snoozed: %+v after %v", snoozed, d)
		}
		if task := s.await(s.enqueue(count{1}, nil), tusk.StateCancelled); task.Reason != "not needed" {
			t.Errorf("cancelled: %+v", task)
		}
		if task := s.await(s.enqueue(count{2}, nil), tusk.StateDiscarded); task.Attempt != 1 || task.Detail.Attempts[0].Error != "hopeless" {
			t.Errorf("discarded: %+v", task)
		}
		if task := s.await(s.enqueue(count{3}, nil), tusk.StateCompleted); task.Attempt != 2 || task.FinishedAt.Sub(task.EnqueuedAt) < 2*time.Hour {
			t.Errorf("retried: %+v", task)
		}
		s.stop(stop)
	})
	inBubble(t, "a timeout ends the context and fails the attempt", func(t *testing.T, s *shop) {
		tusk.HandleFunc(s.mux, func(ctx context.Context, _ count) error {
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), tusk.ErrTimeout) {
				return fmt.Errorf("cause %w", context.Cause(ctx))
			}
			return ctx.Err()
		}, tusk.WithTimeout(time.Hour))
		_, stop := s.work(nil)
		byHandler := s.enqueue(count{}, &tusk.Options{MaxAttempts: 1})
		byTask := s.enqueue(count{}, &tusk.Options{MaxAttempts: 1, Timeout: time.Minute})
		if e := s.await(byTask, tusk.StateDiscarded).Detail.Attempts[0].Error; e != "timed out after 1m0s" {
			t.Error(e)
		}
		if e := s.await(byHandler, tusk.StateDiscarded).Detail.Attempts[0].Error; e != "timed out after 1h0m0s" {
			t.Error(e)
		}
		s.stop(stop)
	})
	inBubble(t, "output, progress and logs are kept", func(t *testing.T, s *shop) {
		proceed := make(chan struct{})
		tusk.Handle(s.mux, func(_ context.Context, t *tusk.Task[count]) error {
			t.Logger().With("a", 1).WithGroup("g").Info("hello", "b", 2)
			t.SetProgress(40, "on the way")
			<-proceed
			t.SetProgress(140, "there")
			return t.RecordOutput(map[string]int{"sum": 3})
		})
		_, stop := s.work(nil)
		id := s.enqueue(count{}, nil)
		s.await(id, tusk.StateRunning)
		time.Sleep(3 * time.Second)
		d := s.get(id).Detail
		if d.Progress == nil || d.Progress.Percent != 40 || len(d.Logs) != 1 || d.Logs[0].Text != "hello a=1 g.b=2" {
			t.Errorf("while it runs: %+v %+v", d.Progress, d.Logs)
		}
		close(proceed)
		d = s.await(id, tusk.StateCompleted).Detail
		if string(d.Output) != `{"sum":3}` || d.Progress.Percent != 100 || len(d.Logs) != 1 {
			t.Errorf("at the end: %s %+v %+v", d.Output, d.Progress, d.Logs)
		}
		s.stop(stop)
	})
	inBubble(t, "an unknown kind is handed back without burning an attempt", func(t *testing.T, s *shop) {
		tusk.HandleFunc(s.mux, func(context.Context, count) error { return nil })
		_, stop := s.work(nil)
		id := s.enqueue(tusk.RawArgs{Name: "stranger"}, &tusk.Options{MaxAttempts: 1})
		time.Sleep(time.Minute)
		if task := s.get(id); task.State.Finished() || task.Attempt > 1 || task.Detail.Attempts != nil && task.Detail.Attempts[0].Error != "" {
			t.Errorf("%+v", task)
		}
		s.stop(stop)
	})
	inBubble(t, "a task that has expired is discarded unrun", func(t *testing.T, s *shop) {
		var ran atomic.Bool
		tusk.HandleFunc(s.mux, func(context.Context, count) error { ran.Store(true); return nil })
		id := s.enqueue(count{}, &tusk.Options{ExpiresIn: time.Minute})
		time.Sleep(2 * time.Minute)
		_, stop := s.work(nil)
		if task := s.await(id, tusk.StateDiscarded); ran.Load() || !strings.Contains(task.Reason, "expired") {
			t.Errorf("%+v", task)
		}
		s.stop(stop)
	})
	inBubble(t, "args that do not fit are a failure that says so", func(t *testing.T, s *shop) {
		tusk.HandleFunc(s.mux, func(context.Context, count) error { return nil })
		_, stop := s.work(nil)
		id := s.enqueue(tusk.RawArgs{Name: "count", JSON: json.RawMessage(`{"N":"seven"}`)}, &tusk.Options{MaxAttempts: 1})
		if e := s.await(id, tusk.StateDiscarded).Detail.Attempts[0].Error; !strings.Contains(e, "count") {
			t.Error(e)
		}
		s.stop(stop)
	})
	inBubble(t, "middleware wraps handlers, the first outermost", func(t *testing.T, s *shop) {
		var mu sync.Mutex
		var order []string
		note := func(name string) tusk.Middleware {
			return func(next tusk.HandlerFunc) tusk.HandlerFunc {
				return func(ctx context.Context, t *tusk.Task[json.RawMessage]) error {
					mu.Lock()
					order = append(order, name)
					mu.Unlock()
					return next(ctx, t)
				}
			}
		}
		tusk.HandleFunc(s.mux, func(context.Context, count) error { return nil })
		_, stop := s.work(&tusk.WorkerConfig{Middleware: []tusk.Middleware{note("a"), note("b")}})
		s.await(s.enqueue(count{}, nil), tusk.StateCompleted)
		s.stop(stop)
		if !slices.Equal(order, []string{"a", "b"}) {
			t.Error(order)
		}
	})
}

func TestWorkers(t *testing.T) {
	inBubble(t, "the tasks of a worker that fell silent are rescued and its late result is refused", func(t *testing.T, s *shop) {
		silent := &cut{Store: s.store}
		mux, release := tusk.NewMux(), make(chan struct{})
		tusk.HandleFunc(mux, func(context.Context, count) error { <-release; return nil })
		victim, err := tusk.NewWorker(clientOf(t, silent), mux, &tusk.WorkerConfig{NeverLead: true})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error)
		go func() { done <- victim.Run(ctx) }()
		id := s.enqueue(count{}, nil)
		s.await(id, tusk.StateRunning)
		silent.off.Store(true)

		tusk.HandleFunc(s.mux, func(context.Context, count) error { return nil })
		w, stop := s.work(nil)
		events, unsubscribe := w.Subscribe(tusk.EventRescued)
		task := s.await(id, tusk.StateCompleted)
		if task.Crashes != 0 || len(task.Detail.Attempts) < 2 || !strings.Contains(task.Detail.Attempts[0].Error, "died") {
			t.Errorf("%+v", task.Detail.Attempts)
		}
		if e := <-events; e.Task.ID != id {
			t.Errorf("%+v", e)
		}
		unsubscribe()
		if waited := task.FinishedAt.Sub(task.EnqueuedAt); waited > 40*time.Second {
			t.Errorf("rescue took %v", waited)
		}
		silent.off.Store(false)
		close(release)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if again := s.get(id); !again.FinishedAt.Equal(task.FinishedAt) {
			t.Error("the late result was accepted")
		}
		s.stop(stop)
	})
	inBubble(t, "a worker that cannot beat cancels its own handlers before the lease ends", func(t *testing.T, s *shop) {
		silent := &cut{Store: s.store}
		s.client = clientOf(t, silent)
		stopped := make(chan time.Time, 1)
		tusk.HandleFunc(s.mux, func(ctx context.Context, _ count) error {
			<-ctx.Done()
			if errors.Is(context.Cause(ctx), tusk.ErrLeaseLost) {
				stopped <- time.Now()
			}
			return ctx.Err()
		})
		_, stop := s.work(nil)
		id := s.enqueue(count{}, nil)
		s.await(id, tusk.StateRunning)
		silent.off.Store(true)
		begun := time.Now()
		if after := (<-stopped).Sub(begun); after > 20*time.Second {
			t.Errorf("cancelled after %v of a 30 s lease", after)
		}
		silent.off.Store(false)
		s.stop(stop)
	})
	inBubble(t, "cancelling a running task reaches its handler within a beat", func(t *testing.T, s *shop) {
		tusk.HandleFunc(s.mux, func(ctx context.Context, _ count) error { <-ctx.Done(); return context.Cause(ctx) })
		_, stop := s.work(nil)
		id := s.enqueue(count{}, nil)
		s.await(id, tusk.StateRunning)
		running, err := s.client.Cancel(context.Background(), id, "changed my mind")
		asked := time.Now()
		if err != nil || !running {
			t.Fatal(running, err)
		}
		s.await(id, tusk.StateCancelled)
		if took := time.Since(asked); took > 11*time.Second {
			t.Error(took)
		}
		s.stop(stop)
	})
	inBubble(t, "a shutdown hands back what has not begun and lets the rest end", func(t *testing.T, s *shop) {
		tusk.HandleFunc(s.mux, func(context.Context, count) error { time.Sleep(10 * time.Second); return nil })
		_, stop := s.work(&tusk.WorkerConfig{Concurrency: 2})
		var ids []tusk.ID
		for range 6 {
			ids = append(ids, s.enqueue(count{}, nil))
		}
		s.await(ids[0], tusk.StateRunning)
		s.stop(stop)
		states := map[tusk.State]int{}
		for _, id := range ids {
			task := s.get(id)
			states[task.State]++
			if task.State == tusk.StateAvailable && task.Attempt != 0 {
				t.Errorf("handed back with an attempt: %+v", task)
			}
		}
		if states[tusk.StateCompleted] != 2 || states[tusk.StateAvailable] != 4 {
			t.Error(states)
		}
		if workers, _ := s.client.Workers(context.Background()); len(workers) != 0 {
			t.Errorf("still signed on: %+v", workers)
		}
	})
	inBubble(t, "a handler that outstays the shutdown is stopped and its task handed back", func(t *testing.T, s *shop) {
		tusk.HandleFunc(s.mux, func(ctx context.Context, _ count) error { <-ctx.Done(); return ctx.Err() })
		_, stop := s.work(&tusk.WorkerConfig{ShutdownTimeout: 5 * time.Second})
		id := s.enqueue(count{}, nil)
		s.await(id, tusk.StateRunning)
		begun := time.Now()
		s.stop(stop)
		if task := s.get(id); task.State != tusk.StateAvailable || task.Attempt != 0 || time.Since(begun) > 7*time.Second {
			t.Errorf("%+v after %v", task, time.Since(begun))
		}
	})
	inBubble(t, "a handler that ignores its context is reported", func(t *testing.T, s *shop) {
		release := make(chan struct{})
		tusk.HandleFunc(s.mux, func(context.Context, count) error { <-release; return nil })
		_, stop := s.work(&tusk.WorkerConfig{ShutdownTimeout: time.Second})
		id := s.enqueue(count{}, nil)
		s.await(id, tusk.StateRunning)
		if err := stop(); err == nil || !strings.Contains(err.Error(), id.String()) {
			t.Error(err)
		}
		close(release)
	})
	inBubble(t, "no task is run twice by three workers, and all are run", func(t *testing.T, s *shop) {
		var runs sync.Map
		tusk.HandleFunc(s.mux, func(_ context.Context, a count) error {
			if _, twice := runs.LoadOrStore(a.N, true); twice {
				t.Errorf("task %d ran twice", a.N)
			}
			return nil
		})
		var stops []func() error
		for range 3 {
			_, stop := s.work(nil)
			stops = append(stops, stop)
		}
		const n = 3000
		tasks := make([]tusk.NewTask, n)
		for i := range tasks {
			tasks[i].Args = count{i}
		}
		if _, err := s.client.EnqueueMany(context.Background(), tasks); err != nil {
			t.Fatal(err)
		}
		for done := 0; done < n; time.Sleep(time.Second) {
			done = 0
			runs.Range(func(any, any) bool { done++; return true })
		}
		for _, stop := range stops {
			s.stop(stop)
		}
		if left, _ := s.client.Queues(context.Background()); len(left) != 0 {
			t.Errorf("%+v", left)
		}
	})
	inBubble(t, "claiming never sleeps while work waits", func(t *testing.T, s *shop) {
		const n = 20000
		var ran atomic.Int64
		tusk.HandleFunc(s.mux, func(context.Context, count) error { ran.Add(1); return nil })
		for range n / 5000 {
			if _, err := s.client.EnqueueMany(context.Background(), slices.Repeat([]tusk.NewTask{{Args: count{}}}, 5000)); err != nil {
				t.Fatal(err)
			}
		}
		begun := time.Now()
		_, stop := s.work(nil)
		for ran.Load() < n {
			time.Sleep(time.Millisecond)
		}
		if took := time.Since(begun); took > 500*time.Millisecond {
			t.Errorf("%v of waiting for %d tasks that were there", took, n)
		}
		s.stop(stop)
	})
	inBubble(t, "a paused queue rests and a resumed one goes on", func(t *testing.T, s *shop) {
		tusk.HandleFunc(s.mux, func(context.Context, count) error { return nil })
		ctx := context.Background()
		if err := s.client.PauseQueue(ctx, "default"); err != nil {
			t.Fatal(err)
		}
		_, stop := s.work(nil)
		id := s.enqueue(count{}, nil)
		time.Sleep(time.Minute)
		if task := s.get(id); task.State != tusk.StateAvailable {
			t.Error(task.State)
		}
		if q, _ := s.client.Queues(ctx); len(q) != 1 || !q[0].Paused || q[0].Tasks[tusk.StateAvailable] != 1 || q[0].Oldest < 59*time.Second {
			t.Errorf("%+v", q)
		}
		if err := s.client.ResumeQueue(ctx, "default"); err != nil {
			t.Fatal(err)
		}
		s.await(id, tusk.StateCompleted)
		s.stop(stop)
	})
	inBubble(t, "every loop tells the age of its last success", func(t *testing.T, s *shop) {
		tusk.HandleFunc(s.mux, func(context.Context, count) error { return nil })
		w, stop := s.work(nil)
		time.Sleep(time.Minute)
		for name, age := range w.Health() {
			if age > 35*time.Second {
				t.Errorf("%s: %v", name, age)
			}
		}
		if !w.Leads() {
			t.Error("the only worker does not lead")
		}
		s.stop(stop)
	})
	inBubble(t, "a worker runs once", func(t *testing.T, s *shop) {
		tusk.HandleFunc(s.mux, func(context.Context, count) error { return nil })
		w, stop := s.work(nil)
		synctest.Wait()
		if err := w.Run(context.Background()); !errors.Is(err, tusk.ErrInvalid) {
			t.Error(err)
		}
		s.stop(stop)
		if err := w.Run(context.Background()); !errors.Is(err, tusk.ErrInvalid) {
			t.Error(err)
		}
	})
	inBubble(t, "a hundred workers that start and stop at once leave nothing behind", func(t *testing.T, s *shop) {
		tusk.HandleFunc(s.mux, func(context.Context, count) error { return nil })
		id := s.enqueue(count{}, nil)
		var all sync.WaitGroup
		for range 100 {
			_, stop := s.work(nil)
			all.Go(func() {
				if err := stop(); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if task := s.get(id); task.State == tusk.StateRunning {
			t.Errorf("%+v", task)
		}
	})
}

func TestWorkerConfigNamesEveryMistakeAtOnce(t *testing.T) {
	mux := tusk.NewMux()
	tusk.HandleFunc(mux, func(context.Context, count) error { return nil })
	_, err := tusk.NewWorker(clientOf(t, memory.New()), mux, &tusk.WorkerConfig{
		Queues: []string{"A B"}, Concurrency: -1, Lease: time.Second, Beat: time.Second, Poll: -1})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, field := range []string{"queue", "Concurrency", "Beat", "Poll"} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("%v does not name %s", err, field)
		}
	}
}

func TestMuxMistakesAreReported(t *testing.T) {
	client := clientOf(t, memory.New())
	for name, fill := range map[string]func(m *tusk.Mux){
		"no handler":   func(*tusk.Mux) {},
		"nil function": func(m *tusk.Mux) { tusk.HandleFunc[count](m, nil) },
		"two for one": func(m *tusk.Mux) {
			tusk.HandleFunc(m, func(context.Context, count) error { return nil })
			tusk.HandleFunc(m, func(context.Context, count) error { return nil })
		},
		"a bad name": func(m *tusk.Mux) {
			tusk.HandleKind(m, "No Good", func(context.Context, *tusk.Task[json.RawMessage]) error { return nil })
		},
	} {
		mux := tusk.NewMux()
		fill(mux)
		if _, err := tusk.NewWorker(client, mux, nil); !errors.Is(err, tusk.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// cut is a store that can be cut off, as by a broken network.
type cut struct {
	store.Store
	off atomic.Bool
}

var errCut = fmt.Errorf("cut off: %w", store.ErrUnavailable)

func (c *cut) Claim(ctx context.Context, r store.ClaimRequest) ([]store.Task, error) {
	if c.off.Load() {
		return nil, errCut
	}
	return c.Store.Claim(ctx, r)
}

func (c *cut) Extend(ctx context.Context, b store.Beat) ([]store.Stop, error) {
	if c.off.Load() {
		return nil, errCut
	}
	return c.Store.Extend(ctx, b)
}

func (c *cut) Finish(ctx context.Context, o []store.Outcome) ([]store.ID, error) {
	if c.off.Load() {
		return nil, errCut
	}
	return c.Store.Finish(ctx, o)
}
