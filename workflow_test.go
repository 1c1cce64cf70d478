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

func TestPipelines(t *testing.T) {
	pipeline := func() *tusk.Pipeline {
		return tusk.NewPipeline("ingest").Stage("fetch", nil).Stage("parse", &tusk.Options{MaxAttempts: 3, Backoff: tusk.ConstantBackoff(time.Minute)}).Stage("store", &tusk.Options{Queue: "slow"})
	}
	inBubble(t, "a task passes the stages, and each gets what the one before returned", func(t *testing.T, s *shop) {
		p := pipeline()
		tusk.HandleStage(s.mux, p, "fetch", func(_ context.Context, t *tusk.Task[int]) (string, error) { return fmt.Sprint("page ", t.Args), nil })
		tusk.HandleStage(s.mux, p, "parse", func(_ context.Context, t *tusk.Task[string]) (string, error) {
			if t.Attempt < 3 {
				return "", errors.New("not yet")
			}
			return t.Args + " parsed", nil
		})
		tusk.HandleStage(s.mux, p, "store", func(_ context.Context, t *tusk.Task[string]) (string, error) { return t.Args + " and stored", nil })
		_, stop := s.work(&tusk.WorkerConfig{Queues: p.Queues()})
		id := s.enqueue(p.Start(7), &tusk.Options{Tenant: "acme", Priority: 4, Metadata: map[string]string{"a": "b"}})
		s.await(id, tusk.StateCompleted)
		time.Sleep(3 * time.Minute)
		run, err := s.client.Workflow(context.Background(), id)
		if err != nil || !run.Done() || len(run.Tasks) != 3 {
			t.Fatalf("%+v, %v", run, err)
		}
		for i, want := range []string{"ingest.fetch", "ingest.parse", "ingest.store"} {
			if task := run.Tasks[i]; task.Kind != want || task.Tenant != "acme" || task.Priority != 4 || task.Metadata["a"] != "b" {
				t.Errorf("stage %d: %+v", i, task)
			}
		}
		told, err := s.client.Pipelines(context.Background())
		if err != nil || len(told) != 1 || told[0].Name != "ingest" || len(told[0].Stages) != 3 || told[0].ToldAt.IsZero() ||
			told[0].Stages[1] != (tusk.StageInfo{Name: "parse", Kind: "ingest.parse", Queue: "ingest.parse"}) || told[0].Stages[2].Queue != "slow" {
			t.Errorf("%+v, %v", told, err)
		}
		if err := s.client.RemovePipeline(context.Background(), "ingest"); err != nil {
			t.Error(err)
		}
		if err := s.client.RemovePipeline(context.Background(), "ingest"); !errors.Is(err, tusk.ErrNotFound) {
			t.Error(err)
		}
		last := run.Tasks[2]
		if last.Queue != "slow" || string(last.Detail.Output) != `"page 7 parsed and stored"` || run.Tasks[1].Attempt != 3 {
			t.Errorf("%+v %s", last, last.Detail.Output)
		}
		s.stop(stop)
	})
	inBubble(t, "a stage may go to another, and end the pipeline", func(t *testing.T, s *shop) {
		p := pipeline()
		tusk.HandleStage(s.mux, p, "fetch", func(_ context.Context, t *tusk.Task[int]) (int, error) { return t.Args + 1, tusk.GoTo("store") })
		tusk.HandleStage(s.mux, p, "parse", func(_ context.Context, t *tusk.Task[int]) (int, error) { return t.Args, tusk.GoTo("") })
		tusk.HandleStage(s.mux, p, "store", func(_ context.Context, t *tusk.Task[int]) (int, error) { return t.Args + 10, tusk.GoTo("parse") })
		_, stop := s.work(&tusk.WorkerConfig{Queues: p.Queues()})
		id := s.enqueue(p.Start(1), nil)
		time.Sleep(time.Minute)
		run, _ := s.client.Workflow(context.Background(), id)
		if len(run.Tasks) != 3 || run.Tasks[2].Kind != "ingest.parse" || string(run.Tasks[2].Detail.Output) != "12" || !run.Done() {
			t.Errorf("%+v", run)
		}
		s.stop(stop)
	})
	inBubble(t, "mistakes in a pipeline are reported", func(t *testing.T, s *shop) {
		for name, p := range map[string]*tusk.Pipeline{
			"a bad name":    tusk.NewPipeline("No"),
			"a stage twice": tusk.NewPipeline("p").Stage("a", nil).Stage("a", nil),
			"a key":         tusk.NewPipeline("p").Stage("a", &tusk.Options{Key: "k"}),
			"no stage":      tusk.NewPipeline("p"),
		} {
			if _, err := s.client.Enqueue(context.Background(), p.Start(1), nil); !errors.Is(err, tusk.ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
			mux := tusk.NewMux()
			tusk.HandleStage(mux, p, "b", func(context.Context, *tusk.Task[int]) (int, error) { return 0, nil })
			if _, err := tusk.NewWorker(s.client, mux, nil); !errors.Is(err, tusk.ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// order collects the order in which tasks ran.
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
		for name, want := range map[string]tusk.State{"a": tusk.StateDiscarded, "b": tusk.StateCancelled, "c": tusk.StateCancelled, "cleanup": tusk.StateCompleted, "waits": tusk.StatePending} {
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
		if info, _ := s.client.Workflow(ctx, run.ID); !info.Done() || info.Ended() != 5 || info.States[tusk.StateCompleted] != 5 {
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
			w.OnSuccess("succeeded", tusk.RawArgs{Name: "callback"}, nil) // whenever it is added
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
			if succeeded, finished := s.get(run.Tasks["succeeded"]), s.get(run.Tasks["finished"]); succeeded.State != want || finished.State != tusk.StateCompleted || len(seen) != 12 {
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
	inBubble(t, "bad graphs are refused, by name", func(t *testing.T, s *shop) {
		cycle, self, double, stranger, tenants, large, bad := tusk.NewWorkflow(), tusk.NewWorkflow(), tusk.NewWorkflow(), tusk.NewWorkflow(), tusk.NewWorkflow(), tusk.NewWorkflow(), tusk.NewWorkflow()
		a := cycle.Task("a", count{}, nil)
		b := cycle.Task("b", count{}, nil).After(a)
		a.After(cycle.Task("c", count{}, nil).After(b))
		one := self.Task("one", count{}, nil)
		one.After(one)
		double.Task("x", count{}, nil)
		double.Task("x", count{}, nil)
		stranger.Task("x", count{}, nil).After(b)
		tenants.Task("x", count{}, &tusk.Options{Tenant: "t1"})
		tenants.Task("y", count{}, &tusk.Options{Tenant: "t2"})
		for i := range tusk.MaxWorkflow + 1 {
			large.Task(fmt.Sprint("t", i), count{}, nil)
		}
		bad.Task("x", count{}, &tusk.Options{Queue: "No Good"})
		for says, w := range map[string]*tusk.Workflow{"cycle": cycle, "one after one": self, "two tasks": double, "not in the workflow": stranger,
			"tenant": tenants, "10000": large, "No Good": bad, "no tasks": tusk.NewWorkflow()} {
			_, err := s.client.EnqueueWorkflow(ctx, w)
			if !errors.Is(err, tusk.ErrInvalid) || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v", says, err)
			}
		}
		if tasks, _ := s.client.List(ctx, tusk.Filter{}); len(tasks) != 0 {
			t.Errorf("%d tasks were stored", len(tasks))
		}
	})
	inBubble(t, "JSON makes the same graph, and its mistakes are named", func(t *testing.T, s *shop) {
		w, err := tusk.ParseWorkflow([]byte(`{"tasks":[{"name":"b","kind":"count","after":["a"],"on_failure":"wait","timeout":"30s"},{"name":"a","kind":"count","args":{"N":3}}]}`))
		if err != nil {
			t.Fatal(err)
		}
		run, err := s.client.EnqueueWorkflow(ctx, w)
		if err != nil {
			t.Fatal(err)
		}
		if b := s.get(run.Tasks["b"]); b.State != tusk.StatePending || b.Timeout != 30*time.Second || b.Detail.Needs[0].OnFailure != tusk.WaitOnFailure {
			t.Errorf("%+v", b)
		}
		w, err = tusk.ParseWorkflow([]byte(`{"tasks":[{"name":"a","kind":"count","args":{"N":1},"weight":5,"deadline_in":"1h","expires_in":"30m","partition":"p","ephemeral":true},
			{"name":"b","kind":"count","args":{"N":2},"deadline":"2001-01-02T03:04:05Z"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		if run, err = s.client.EnqueueWorkflow(ctx, w); err != nil {
			t.Fatal(err)
		}
		a, b := s.get(run.Tasks["a"]), s.get(run.Tasks["b"])
		if a.Weight != 5 || a.Deadline.Sub(a.EnqueuedAt) != time.Hour || a.ExpiresAt.Sub(a.EnqueuedAt) != 30*time.Minute || !a.Ephemeral ||
			b.Weight != 1 || !b.Deadline.Equal(time.Date(2001, 1, 2, 3, 4, 5, 0, time.UTC)) || b.Ephemeral {
			t.Errorf("%+v\n%+v", a, b)
		}
		for text, says := range map[string]string{
			`{"tasks":[{"name":"a","kind":"k","deadline":"tomorrow"}]}`: "tomorrow",
			`{"tasks":[{"name":"a","kind":"k","deadline_in":"soon"}]}`:  "soon",
			`{`:             "unexpected EOF",
			`{"tasks":[]}x`: "more after",
			`{"tasks":[{"name":"a","kind":"k","after":["z"]}]}`:                                       `"z"`,
			`{"tasks":[{"name":"b","kind":"k"},{"name":"a","kind":"k","last":true,"after":["b"]}]}`:   "comes last",
			`{"tasks":[{"name":"a","kind":"k","colour":1}]}`:                                          "colour",
			`{"tasks":[{"name":"a","kind":"k","timeout":"soon"}]}`:                                    "soon",
			`{"tasks":[{"name":"a","kind":"k","on_failure":"panic"}]}`:                                "panic",
			`{"tasks":[{"name":"a","kind":"k","after":["b"]},{"name":"b","kind":"k","after":["a"]}]}`: "cycle",
		} {
			if _, err := tusk.ParseWorkflow([]byte(text)); !errors.Is(err, tusk.ErrInvalid) || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v", text, err)
			}
		}
	})
	inBubble(t, "what JSON says of a task is checked when it is enqueued", func(t *testing.T, s *shop) {
		for member, says := range map[string]string{`"weight":-1`: "weight", `"deadline_in":"-1h"`: "deadline", `"expires_in":"-1s"`: "expires"} {
			w, err := tusk.ParseWorkflow([]byte(`{"tasks":[{"name":"a","kind":"k",` + member + `}]}`))
			if err == nil {
				_, err = s.client.EnqueueWorkflow(ctx, w)
			}
			if !errors.Is(err, tusk.ErrInvalid) || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v", member, err)
			}
		}
	})
	inBubble(t, "ten thousand tasks run in their order", func(t *testing.T, s *shop) {
		var mu sync.Mutex
		done := map[tusk.ID]bool{}
		tusk.Handle(s.mux, func(_ context.Context, task *tusk.Task[count]) error {
			mu.Lock()
			defer mu.Unlock()
			done[task.ID] = true
			return nil
		})
		w := tusk.NewWorkflow()
		var before []*tusk.Node
		for level := range 100 {
			var nodes []*tusk.Node
			for i := range 100 {
				n := w.Task(fmt.Sprintf("n-%d-%d", level, i), count{}, nil)
				if level > 0 {
					n.After(before[i], before[(i+1)%100])
				}
				nodes = append(nodes, n)
			}
			before = nodes
		}
		_, stop := s.work(&tusk.WorkerConfig{Concurrency: 100})
		run, err := s.client.EnqueueWorkflow(ctx, w)
		if err != nil {
			t.Fatal(err)
		}
		for range 600 {
			if mu.Lock(); len(done) == 10000 {
				mu.Unlock()
				break
			}
			mu.Unlock()
			time.Sleep(time.Second)
		}
		time.Sleep(time.Second)
		if info, _ := s.client.Workflow(ctx, run.ID); !info.Done() {
			t.Errorf("%+v", info.States)
		}
		s.stop(stop)
	})
}

func FuzzParseWorkflow(f *testing.F) {
	f.Add([]byte(`{"tasks":[{"name":"b","kind":"count","after":["a"]},{"name":"a","kind":"count"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if _, err := tusk.ParseWorkflow(text); err != nil && !errors.Is(err, tusk.ErrInvalid) {
			t.Errorf("%q: %v", text, err)
		}
	})
}

func ExamplePipeline() {
	client, mux := newClient(), tusk.NewMux()
	p := tusk.NewPipeline("words").Stage("split", nil).Stage("count", nil)
	tusk.HandleStage(mux, p, "split", func(ctx context.Context, t *tusk.Task[string]) ([]string, error) {
		return strings.Fields(t.Args), nil
	})
	tusk.HandleStage(mux, p, "count", func(ctx context.Context, t *tusk.Task[[]string]) (int, error) {
		fmt.Println(len(t.Args), "words")
		return len(t.Args), nil
	})
	fmt.Println(p.Queues())
	ctx, cancel := context.WithCancel(context.Background())
	worker, _ := tusk.NewWorker(client, mux, &tusk.WorkerConfig{Queues: p.Queues()})
	events, _ := worker.Subscribe(tusk.EventCompleted)
	done := make(chan error)
	go func() { done <- worker.Run(ctx) }()
	_, _ = client.Enqueue(ctx, p.Start("a task queue"), nil)
	first, second := <-events, <-events
	fmt.Println(first.Task.Kind, "then", second.Task.Kind)
	cancel()
	<-done
	// Output:
	// [words.count words.split]
	// 3 words
	// words.split then words.count
}

func ExampleWorkflow() {
	ctx, client := context.Background(), newClient()
	w := tusk.NewWorkflow()
	extract := w.Task("extract", Greet{Name: "the data"}, nil)
	load := w.Task("load", Greet{Name: "the warehouse"}, nil).After(extract)
	w.Task("tell", Greet{Name: "everybody"}, nil).After(load).OnFailure(tusk.ContinueOnFailure)
	run, err := client.EnqueueWorkflow(ctx, w)
	fmt.Println(err)
	info, _ := client.Workflow(ctx, run.ID)
	for _, t := range info.Tasks {
		fmt.Println(t.Node, t.State)
	}
	// Output:
	// <nil>
	// extract available
	// load pending
	// tell pending
}

// Many tasks with one callback when all have completed, and one when all have ended.
func ExampleWorkflow_OnSuccess() {
	ctx, client := context.Background(), newClient()
	w := tusk.NewWorkflow()
	for _, name := range []string{"ada", "alan", "grace"} {
		w.Task(name, Greet{Name: name}, nil)
	}
	w.OnSuccess("thank", Greet{Name: "everybody"}, nil)
	w.OnFinish("sweep", Greet{Name: "the floor"}, nil)
	run, err := client.EnqueueWorkflow(ctx, w)
	fmt.Println(err)
	_, _ = client.Cancel(ctx, run.Tasks["alan"], "away")
	info, _ := client.Workflow(ctx, run.ID)
	fmt.Println(info.Ended(), "of", len(info.Tasks))
	// Output:
	// <nil>
	// 1 of 5
}

// A task that failed is mended; it and what comes after it run again.
func ExampleClient_RetryWorkflowFrom() {
	ctx, client := context.Background(), newClient()
	w := tusk.NewWorkflow()
	extract := w.Task("extract", Greet{}, nil)
	w.Task("load", Greet{}, nil).After(extract)
	run, _ := client.EnqueueWorkflow(ctx, w)
	_, _ = client.CancelWorkflow(ctx, run.ID, "the source is broken")
	n, err := client.RetryWorkflowFrom(ctx, run.ID, "extract")
	fmt.Println(n, err)
	info, _ := client.Workflow(ctx, run.ID)
	for _, t := range info.Tasks {
		fmt.Println(t.Node, t.State)
	}
	// Output:
	// 2 <nil>
	// extract available
	// load pending
}

// A task splits its work into children, waits for them, and sums up what they came to.
func ExampleTask_Spawn() {
	client, mux := newClient(), tusk.NewMux()
	tusk.Handle(mux, func(ctx context.Context, t *tusk.Task[Greet]) error {
		if t.Args.Name != "everybody" {
			return t.RecordOutput("hello " + t.Args.Name)
		}
		inputs, err := t.Inputs(ctx)
		if err != nil {
			return err
		}
		if len(inputs) == 0 {
			for _, name := range []string{"Ada", "Alan"} {
				if _, err := t.Spawn(ctx, Greet{Name: name}, nil); err != nil {
					return err
				}
			}
			return tusk.Wait()
		}
		for _, in := range inputs {
			fmt.Println(in.State, string(in.Output))
		}
		return nil
	})
	r, _ := client.Enqueue(context.Background(), Greet{Name: "everybody"}, nil)
	runUntil(client, mux, r.ID, tusk.StateCompleted)
	run, _ := client.Workflow(context.Background(), r.ID)
	fmt.Println(run.Ended(), "of", len(run.Tasks), "have ended")
	// Output:
	// completed "hello Ada"
	// completed "hello Alan"
	// 3 of 3 have ended
}
