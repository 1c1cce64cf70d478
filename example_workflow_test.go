package tusk_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/tuskqueue/tusk"
)

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

// A document that changes while it is in the pipeline passes it again, after the current run.
func ExampleClient_RunAhead() {
	ctx, client := context.Background(), newClient()
	p := tusk.NewPipeline("words").Stage("split", nil).Stage("count", nil)
	fmt.Println(client.DefinePipeline(ctx, p))
	document := &tusk.Options{Key: "document-9", OnConflict: tusk.Rerun}
	_, _ = client.Enqueue(ctx, p.StartAt("count", []string{"a", "task"}), document)
	changed, _ := client.Enqueue(ctx, p.Start("a task queue"), document)
	task, _ := client.Get(ctx, changed.ID)
	ahead, _ := client.RunAhead(ctx, task)
	fmt.Println(task.Kind, "begins after", ahead.Kind)
	// Output:
	// <nil>
	// words.split begins after words.count
}

// A pipeline that the database knows can have stages in any language. Here an external worker
// runs one stage, and a handler for external code runs the other.
func ExampleClient_DefinePipeline() {
	ctx, cancel := context.WithCancel(context.Background())
	client, mux := newClient(), tusk.NewMux()
	p, err := tusk.ParsePipeline("words", []byte(`{"stages":[{"name":"split"},{"name":"count","max_attempts":3}]}`))
	fmt.Println(err, client.DefinePipeline(ctx, p))

	tusk.HandleKind(mux, "words.count", func(ctx context.Context, t *tusk.Task[[]string]) error {
		return t.RecordOutput(len(t.Args))
	}, tusk.WithPipeline())
	worker, _ := tusk.NewWorker(client, mux, &tusk.WorkerConfig{Queues: []string{"words.count"}})
	puller := client.NewPuller()
	done := make(chan error)
	go func() { done <- worker.Run(ctx) }()
	go func() { done <- puller.Run(ctx) }()

	p, _ = client.Pipeline(ctx, "words")
	run, _ := client.Enqueue(ctx, p.Start("a task queue"), nil)
	lent, _ := puller.Claim(ctx, tusk.Pull{Queues: []string{"words.split"}, Wait: 10 * time.Second})
	_, _ = puller.Finish(ctx, []tusk.Verdict{{Receipt: lent[0].Receipt, Output: json.RawMessage(`["a","task","queue"]`)}})
	for {
		if w, _ := client.Workflow(ctx, run.ID); w.Done() {
			fmt.Println(w.Tasks[1].Kind, string(w.Tasks[1].Detail.Output))
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	cancel()
	<-done
	<-done
	// Output:
	// <nil> <nil>
	// words.count 3
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

// Many tasks with one callback for when all have completed, and one for when all have ended.
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

// The cause of a failure is fixed; the failed task and its descendants run again.
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

// A task splits its work into children, waits for them, and combines their results.
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
