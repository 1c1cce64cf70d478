package tusk_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store/memory"
)

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
		if a.Error != "panic: argh" || !strings.Contains(a.Trace, "handler_test.go") || !strings.Contains(b.Error, "Goexit") {
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
		if d := snoozed.FinishedAt.Sub(snoozed.EnqueuedAt); snoozed.Attempt != 1 || d < time.Hour ||
			d > time.Hour+time.Minute {
			t.Errorf("snoozed: %+v after %v", snoozed, d)
		}
		if task := s.await(s.enqueue(count{1}, nil), tusk.StateCancelled); task.Reason != "not needed" {
			t.Errorf("cancelled: %+v", task)
		}
		if task := s.await(s.enqueue(count{2}, nil), tusk.StateDiscarded); task.Attempt != 1 ||
			task.Detail.Attempts[0].Error != "hopeless" {
			t.Errorf("discarded: %+v", task)
		}
		if task := s.await(s.enqueue(count{3}, nil), tusk.StateCompleted); task.Attempt != 2 ||
			task.FinishedAt.Sub(task.EnqueuedAt) < 2*time.Hour {
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
		if e := s.await(byTask, tusk.StateDiscarded).Detail.Attempts[0].Error; e != "timed out after 1m" {
			t.Error(e)
		}
		if e := s.await(byHandler, tusk.StateDiscarded).Detail.Attempts[0].Error; e != "timed out after 1h" {
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
	inBubble(t, "what one of two workers cannot run is soon run by the other", func(t *testing.T, s *shop) {
		tusk.HandleFunc(s.mux, func(context.Context, count) error { return nil })
		_, stop := s.work(&tusk.WorkerConfig{NeverLead: true})
		s.mux = tusk.NewMux()
		tusk.HandleKind(s.mux, "stranger", func(context.Context, *tusk.Task[json.RawMessage]) error { return nil })
		_, stopOther := s.work(nil)
		time.Sleep(time.Minute)
		tasks := make([]tusk.NewTask, 200)
		for i := range tasks {
			tasks[i].Args = tusk.RawArgs{Name: []string{"stranger", "count"}[i%2]}
		}
		if _, err := s.client.EnqueueMany(t.Context(), tasks); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		left, err := s.client.List(t.Context(),
			tusk.Filter{States: []tusk.State{tusk.StateScheduled, tusk.StateAvailable, tusk.StateRunning}})
		if err != nil || len(left) > 0 {
			t.Errorf("%d of %d have not run, %v", len(left), len(tasks), err)
		}
		s.stop(stop)
		s.stop(stopOther)
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

func TestMistakesOfHandlersAndRetentionsAreReportedByNewWorker(t *testing.T) {
	s := newShop(t)
	handle := func(register func(m *tusk.Mux)) *tusk.Mux {
		m := tusk.NewMux()
		register(m)
		return m
	}
	good := handle(func(m *tusk.Mux) { tusk.HandleFunc(m, func(context.Context, count) error { return nil }) })
	for name, c := range map[string]struct {
		mux    *tusk.Mux
		config tusk.WorkerConfig
		want   string
	}{
		"a pointer": {mux: handle(func(m *tusk.Mux) {
			tusk.Handle(m, func(context.Context, *tusk.Task[*count]) error { return nil })
		}), want: "not a pointer"},
		"a pointer to a plain function": {mux: handle(func(m *tusk.Mux) {
			tusk.HandleFunc(m, func(context.Context, *count) error { return nil })
		}), want: "not a pointer"},
		"a pointer to a batch": {mux: handle(func(m *tusk.Mux) {
			tusk.HandleBatch(m, func(context.Context, []*tusk.Task[*count]) []error { return nil }, tusk.BatchOptions{})
		}), want: "*tusk_test.count"},
		"7 ns": {mux: good, config: tusk.WorkerConfig{Retention: tusk.Retention{Completed: 7}}, want: "Retention.Completed"},
		"7 ns of a queue": {mux: good, config: tusk.WorkerConfig{Retention: tusk.Retention{
			Queues: map[string]tusk.Retention{"q": {Discarded: 7}}}}, want: "Retention.Discarded"},
		"for ever": {mux: good, config: tusk.WorkerConfig{Retention: tusk.Retention{Completed: tusk.Forever}}},
	} {
		_, err := tusk.NewWorker(s.client, c.mux, &c.config)
		if c.want == "" && err != nil ||
			c.want != "" && (!errors.Is(err, tusk.ErrInvalid) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestATaskThatNoWorkerGaveSaysSo(t *testing.T) {
	ctx, made := t.Context(), &tusk.Task[count]{Args: count{1}}
	_, spawned := made.Spawn(ctx, count{}, nil)
	_, inputs := made.Inputs(ctx)
	for what, err := range map[string]error{"output": made.RecordOutput(1), "stream": made.StreamOutput(ctx, nil),
		"spawn": spawned, "inputs": inputs, "complete": made.CompleteTx(ctx, nil)} {
		if err == nil || !strings.Contains(err.Error(), "tusktest") {
			t.Errorf("%s: %v", what, err)
		}
	}
	made.SetProgress(1, "one")
	made.Alive()
	made.Logger().With("a", 1).Info("line")
	if err := made.Logger().Handler().Handle(ctx, slog.Record{}); err != nil { // as a handler that asks nothing first
		t.Error(err)
	}
}

func TestMiddlewareHasToPassOnItsTask(t *testing.T) {
	inBubble(t, "another one fails the attempt", func(t *testing.T, s *shop) {
		tusk.HandleFunc(s.mux, func(context.Context, count) error { return nil })
		_, stop := s.work(&tusk.WorkerConfig{Middleware: []tusk.Middleware{func(next tusk.HandlerFunc) tusk.HandlerFunc {
			return func(ctx context.Context, t *tusk.Task[json.RawMessage]) error {
				return next(ctx, &tusk.Task[json.RawMessage]{TaskInfo: t.TaskInfo, Args: t.Args})
			}
		}}})
		task := s.await(s.enqueue(count{}, &tusk.Options{MaxAttempts: 1}), tusk.StateDiscarded)
		if got := task.Detail.Attempts[0].Error; !strings.HasPrefix(got, "middleware passed on another task: ") {
			t.Errorf("%q", got)
		}
		s.stop(stop)
	})
}
