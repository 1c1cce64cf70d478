package tusk_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tuskqueue/tusk"
)

func ExampleClient_Validate() {
	client := newClient()
	fmt.Println(client.Validate(Greet{Name: "Ada"}, &tusk.Options{Weight: -1}))
	fmt.Println(tusk.ValidateName("queue", "mail"), errors.Is(tusk.ValidateName("queue", "Mail!"), tusk.ErrInvalid))
	fmt.Println(errors.Is(tusk.ValidateOutput([]byte(`{`)), tusk.ErrInvalid))
	// Output:
	// weight: is -1, want 1 to 1000000 (0: 1)
	// <nil> true
	// true
}

func ExampleClient_KeyAt() {
	ctx, client := context.Background(), newClient()
	task := tusk.NewTask{Args: Greet{Name: "Ada"}, Options: &tusk.Options{Unique: &tusk.Unique{}}}
	first, _ := client.Enqueue(ctx, task.Args, task.Options)
	key, err := client.KeyAt(task, time.Now())
	tasks, _ := client.List(ctx, tusk.Filter{Key: key})
	fmt.Println(err, len(tasks), tasks[0].ID == first.ID)
	// Output: <nil> 1 true
}

func ExampleParseID() {
	id := tusk.NewID()
	again, err := tusk.ParseID(id.String())
	fmt.Println(again == id, err)
	// Output: true <nil>
}

// A handler can be registered by the name of a kind, take raw args, and say when to try
// again.
func ExampleHandleKind() {
	client, mux := newClient(), tusk.NewMux()
	tusk.HandleKind(mux, "greet", func(ctx context.Context, t *tusk.Task[json.RawMessage]) error {
		if t.Attempt == 1 {
			return errors.New("nobody opens")
		}
		fmt.Println(string(t.Args), "attempt", t.Attempt, t.IdempotencyKey() == t.ID.String())
		return nil
	}, tusk.WithRetry(func(n int, err error) time.Duration { return time.Duration(n) * time.Millisecond }))
	fmt.Println(mux.Kinds())
	r, _ := client.Enqueue(context.Background(), Greet{Name: "Ada"}, nil)
	runUntil(client, mux, r.ID, tusk.StateCompleted)
	// Output:
	// [greet]
	// {"name":"Ada"} attempt 2 true
}

func ExampleExponentialBackoff() {
	for _, b := range []tusk.Backoff{tusk.ConstantBackoff(time.Minute), tusk.LinearBackoff(time.Minute),
		tusk.ExponentialBackoff(time.Second, time.Minute, 0)} {
		text, _ := json.Marshal(b)
		fmt.Println(string(text))
	}
	// Output:
	// {"shape":"constant","base":60000000000}
	// {"shape":"linear","base":60000000000}
	// {"shape":"exponential","base":1000000000,"max":60000000000}
}

// A stage sends a task back to an earlier stage. A run can start at any stage.
func ExampleGoTo() {
	client, mux := newClient(), tusk.NewMux()
	p := tusk.NewPipeline("letters").Stage("write", nil).Stage("check", nil).Stage("send", nil)
	tusk.HandleStage(mux, p, "write", func(ctx context.Context, t *tusk.Task[string]) (string, error) {
		return t.Args + "!", nil
	})
	tusk.HandleStage(mux, p, "check", func(ctx context.Context, t *tusk.Task[string]) (string, error) {
		if len(t.Args) < 4 {
			return t.Args, tusk.GoTo("write")
		}
		return t.Args, nil
	})
	sent := make(chan string)
	tusk.HandleStage(mux, p, "send", func(ctx context.Context, t *tusk.Task[string]) (string, error) {
		sent <- t.Args
		return "", nil
	})
	ctx, cancel := context.WithCancel(context.Background())
	worker, _ := tusk.NewWorker(client, mux, &tusk.WorkerConfig{Queues: p.Queues()})
	done := make(chan error)
	go func() { done <- worker.Run(ctx) }()
	_, _ = client.Enqueue(ctx, p.StartAt("check", "hi"), nil)
	fmt.Println(<-sent)
	pipelines, _ := client.Pipelines(ctx)
	stats, _ := client.AllPipelineStats(ctx, time.Now().Add(-time.Hour))
	fmt.Println(pipelines[0].Name, len(stats["letters"]), client.RemovePipeline(ctx, "letters"))
	cancel()
	<-done
	// Output:
	// hi!!
	// letters 3 <nil>
}

func ExampleParseWorkflow() {
	ctx, client := context.Background(), newClient()
	w, err := tusk.ParseWorkflow([]byte(`{"tasks":[
		{"name":"load","kind":"greet","after":["extract"],"timeout":"5m"},
		{"name":"extract","kind":"greet","args":{"name":"data"},"weight":3,"deadline_in":"1h"}]}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	run, _ := client.EnqueueWorkflow(ctx, w)
	_, _ = client.CancelWorkflow(ctx, run.ID, "not today")
	n, err := client.RetryWorkflow(ctx, run.ID)
	fmt.Println(len(run.Tasks), n, err)
	// Output: 2 2 <nil>
}

func ExampleParseBackoff() {
	b, err := tusk.ParseBackoff("exponential:5s:1h")
	fmt.Println(b.Shape, b.Base, b.Max, err)
	_, err = tusk.ParseBackoff("exponential:1h:5s")
	fmt.Println(err)
	// Output:
	// exponential 5s 1h0m0s <nil>
	// backoff: has the base 1h above its max 5s: exchange them, or leave the max out
}

// The first attempt fails after its first step. The second one skips that step.
func ExampleStep() {
	client, mux := newClient(), tusk.NewMux()
	tusk.Handle(mux, func(ctx context.Context, t *tusk.Task[Greet]) error {
		id, err := tusk.Step(ctx, t, "charge", func(context.Context) (int, error) {
			fmt.Println("charging")
			return 7, nil
		})
		if err != nil {
			return err
		}
		if t.Attempt == 1 {
			return tusk.RetryAfter(0, errors.New("no parcel"))
		}
		fmt.Println("shipping, paid by charge", id)
		return nil
	})
	r, _ := client.Enqueue(context.Background(), Greet{Name: "Ada"}, nil)
	runUntil(client, mux, r.ID, tusk.StateCompleted)
	// Output:
	// charging
	// shipping, paid by charge 7
}
