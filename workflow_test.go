package tusk_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
)

type order struct {
	mu    sync.Mutex
	names []string
}

func (o *order) add(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.names = append(o.names, name)
}

func (o *order) clear() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.names = nil
}

func (o *order) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Join(o.names, " ")
}

func TestWorkflows(t *testing.T) {
	ctx := context.Background()
	inBubble(t, "tasks run after those that they come after, and see their outputs", func(t *testing.T, s *shop) {
		var ran order
		tusk.Handle(s.mux, func(ctx context.Context, task *tusk.Task[count]) error {
			ran.add(task.Node)
			sum := task.Args.N
			inputs, err := task.Inputs(ctx)
			for _, in := range inputs {
				var n int
				if err := json.Unmarshal(in.Output, &n); err != nil || in.State != tusk.StateCompleted || in.Name == "" {
					t.Errorf("%+v, %v", in, err)
				}
				sum += n
			}
			return errors.Join(err, task.RecordOutput(sum))
		})
		w := tusk.NewWorkflow()
		a := w.Task("a", count{1}, nil)
		b := w.Task("b", count{10}, nil).After(a)
		c := w.Task("c", count{100}, nil).After(a)
		w.Task("d", count{1000}, nil).After(b, c)
		run, err := s.client.EnqueueWorkflow(ctx, w)
		if err != nil {
			t.Fatal(err)
		}
		_, stop := s.work(&tusk.WorkerConfig{Concurrency: 1})
		d := s.await(run.Tasks["d"], tusk.StateCompleted)
		if string(d.Detail.Output) != "1112" || ran.String() != "a b c d" {
			t.Errorf("%s, %s", d.Detail.Output, ran.String())
		}
		info, err := s.client.Workflow(ctx, run.ID)
		if err != nil || len(info.Tasks) != 4 || !info.Done() || info.States[tusk.StateCompleted] != 4 {
			t.Errorf("%+v, %v", info, err)
		}
		s.stop(stop)
	})
	inBubble(t, "a failure cancels what comes after, and a retry runs the rest", func(t *testing.T, s *shop) {
		mended := false
		tusk.HandleFunc(s.mux, func(_ context.Context, a count) error {
			if a.N == 1 && !mended {
				return tusk.Discard(errors.New("broken"))
			}
			return nil
		})
		w := tusk.NewWorkflow()
		a := w.Task("a", count{1}, nil)
		b := w.Task("b", count{}, nil).After(a)
		w.Task("c", count{}, nil).After(b)
		w.Task("cleanup", count{}, nil).After(b).OnFailure(tusk.ContinueOnFailure)
		w.Task("waits", count{}, nil).After(a).OnFailure(tusk.WaitOnFailure)
		run, err := s.client.EnqueueWorkflow(ctx, w)
		if err != nil {
			t.Fatal(err)
		}
		_, stop := s.work(nil)
		time.Sleep(time.Minute)
		for name, want := range map[string]tusk.State{"a": tusk.StateDiscarded, "b": tusk.StateCancelled,
			"c": tusk.StateCancelled, "cleanup": tusk.StateCompleted, "waits": tusk.StatePending} {
			if task := s.get(run.Tasks[name]); task.State != want {
				t.Errorf("%s is %v, want %v", name, task.State, want)
			}
		}
		mended = true
		if n, err := s.client.RetryWorkflow(ctx, run.ID); n != 3 || err != nil {
			t.Errorf("retried %d, %v", n, err)
		}
		time.Sleep(time.Minute)
		if info, _ := s.client.Workflow(ctx, run.ID); !info.Done() || info.States[tusk.StateCompleted] != 5 {
			t.Errorf("%+v", info.States)
		}
		s.stop(stop)
	})
	inBubble(t, "a part of it runs again, from a task on", func(t *testing.T, s *shop) {
		var ran order
		var mended atomic.Bool
		tusk.Handle(s.mux, func(_ context.Context, task *tusk.Task[count]) error {
			if ran.add(task.Node); task.Node == "c" && !mended.Load() {
				return tusk.Discard(errors.New("broken"))
			}
			return nil
		})
		w := tusk.NewWorkflow()
		a := w.Task("a", count{}, nil)
		b := w.Task("b", count{}, nil).After(a)
		c := w.Task("c", count{}, nil).After(a)
		w.Task("d", count{}, nil).After(b, c)
		w.Task("e", count{}, nil).After(c).OnFailure(tusk.ContinueOnFailure)
		run, err := s.client.EnqueueWorkflow(ctx, w)
		if err != nil {
			t.Fatal(err)
		}
		_, stop := s.work(&tusk.WorkerConfig{Concurrency: 1})
		if _, err := s.client.RetryWorkflowFrom(ctx, run.ID, "d"); !errors.Is(err, tusk.ErrRefused) {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		mended.Store(true)
		for _, from := range []struct {
			node string
			want int
			runs string
		}{{"c", 3, "c d e"}, {run.Tasks["b"].String(), 2, "b d"}, {"a", 5, "a b c d e"}} {
			ran.clear()
			if n, err := s.client.RetryWorkflowFrom(ctx, run.ID, from.node); n != from.want || err != nil {
				t.Errorf("from %s: %d, %v", from.node, n, err)
			}
			time.Sleep(time.Minute)
			if ran.String() != from.runs {
				t.Errorf("from %s ran %s, want %s", from.node, ran.String(), from.runs)
			}
		}
		if info, _ := s.client.Workflow(ctx, run.ID); !info.Done() || info.Ended() != 5 ||
			info.States[tusk.StateCompleted] != 5 {
			t.Errorf("%+v", info.States)
		}
		if _, err := s.client.RetryWorkflowFrom(ctx, run.ID, "none"); !errors.Is(err, tusk.ErrNotFound) {
			t.Error(err)
		}
		s.stop(stop)
	})
	inBubble(t, "callbacks run when all have completed, and when all have ended", func(t *testing.T, s *shop) {
		for _, fails := range []bool{false, true} {
			inputs := make(chan []tusk.Input, 1)
			tusk.Handle(s.mux, func(ctx context.Context, task *tusk.Task[count]) error {
				if task.Args.N == 3 && fails {
					return tusk.Discard(errors.New("broken"))
				}
				return nil
			})
			tusk.HandleKind(s.mux, "callback", func(ctx context.Context, task *tusk.Task[count]) error {
				if task.Node != "finished" {
					return nil
				}
				seen, err := task.Inputs(ctx)
				inputs <- seen
				return err
			})
			w := tusk.NewWorkflow()
			w.OnSuccess("succeeded", tusk.RawArgs{Name: "callback"}, nil) // the order of adding does not matter
			for i := range 10 {
				w.Task(fmt.Sprint("t", i), count{i}, nil)
			}
			w.Task("child", count{}, nil).After(w.Task("parent", count{}, nil))
			w.OnFinish("finished", tusk.RawArgs{Name: "callback"}, nil)
			run, err := s.client.EnqueueWorkflow(ctx, w)
			if err != nil {
				t.Fatal(err)
			}
			_, stop := s.work(nil)
			time.Sleep(time.Minute)
			want := map[bool]tusk.State{false: tusk.StateCompleted, true: tusk.StateCancelled}[fails]
			seen := <-inputs
			if succeeded, finished := s.get(run.Tasks["succeeded"]), s.get(run.Tasks["finished"]); succeeded.State != want ||
				finished.State != tusk.StateCompleted || len(seen) != 12 {
				t.Errorf("fails %v: %v, %v, %d inputs", fails, succeeded.State, finished.State, len(seen))
			}
			s.stop(stop)
			s.mux = tusk.NewMux()
		}
	})
	inBubble(t, "a workflow is cancelled as a whole", func(t *testing.T, s *shop) {
		w := tusk.NewWorkflow()
		w.Task("b", count{}, nil).After(w.Task("a", count{}, nil))
		run, err := s.client.EnqueueWorkflow(ctx, w)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := s.client.CancelWorkflow(ctx, run.ID, "enough"); n != 2 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		if _, err := s.client.CancelWorkflow(ctx, tusk.ID{}, ""); !errors.Is(err, tusk.ErrNotFound) {
			t.Errorf("the id of zeros is one of all tasks: %v", err)
		}
		if _, err := s.client.CancelWorkflow(ctx, tusk.NewID(), ""); !errors.Is(err, tusk.ErrNotFound) {
			t.Error(err)
		}
	})
	inBubble(t, "a task waits for the children that it spawns, with their outputs", func(t *testing.T, s *shop) {
		tusk.Handle(s.mux, func(ctx context.Context, task *tusk.Task[count]) error {
			if task.Args.N > 0 {
				return task.RecordOutput(task.Args.N)
			}
			inputs, err := task.Inputs(ctx)
			if err != nil {
				return err
			}
			if len(inputs) == 0 {
				for n := range 5 {
					if _, err := task.Spawn(ctx, count{n + 1}, nil); err != nil {
						return err
					}
				}
				return tusk.Wait()
			}
			sum := 0
			for _, in := range inputs {
				var n int
				_ = json.Unmarshal(in.Output, &n)
				sum += n
			}
			return task.RecordOutput(sum)
		})
		_, stop := s.work(nil)
		id := s.enqueue(count{0}, nil)
		task := s.await(id, tusk.StateCompleted)
		if string(task.Detail.Output) != "15" || task.Attempt != 1 {
			t.Errorf("%s after %d attempts", task.Detail.Output, task.Attempt)
		}
		if info, _ := s.client.Workflow(ctx, id); len(info.Tasks) != 6 {
			t.Errorf("%d tasks", len(info.Tasks))
		}
		s.stop(stop)
	})
}
