package tusk_test

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/tuskqueue/tusk"
)

// An external worker gets the outputs of the tasks that its task comes after.
func ExamplePuller_Inputs() {
	ctx, cancel := context.WithCancel(context.Background())
	client := newClient()
	puller := client.NewPuller()
	done := make(chan error)
	go func() { done <- puller.Run(ctx) }()

	w := tusk.NewWorkflow()
	ada := w.Task("ada", Greet{Name: "Ada"}, nil)
	w.Task("all", Greet{Name: "all"}, nil).After(ada)
	_, _ = client.EnqueueWorkflow(ctx, w)
	next := tusk.Pull{Queues: []string{"default"}, Wait: 10 * time.Second}
	first, _ := puller.Claim(ctx, next)
	_, _ = puller.Finish(ctx, []tusk.Verdict{{Receipt: first[0].Receipt, Output: json.RawMessage(`"hello Ada"`)}})

	last, _ := puller.Claim(ctx, next)
	inputs, more, err := puller.Inputs(ctx, last[0].Receipt, tusk.ID{}) // pass the last id for the next page
	fmt.Println(last[0].Node, "after", inputs[0].Name, string(inputs[0].Output), more, err)
	few, more, err := puller.FirstInputs(ctx, last[0].Receipt, 512<<10) // as much as fits into a message
	fmt.Println(len(few), more, err)
	one, err := puller.Input(ctx, last[0].Receipt, inputs[0].ID)
	fmt.Println(one.State, one.Content.Size(), "bytes", err)
	cancel()
	<-done
	// Output:
	// all after ada "hello Ada" false <nil>
	// 1 false <nil>
	// completed 11 bytes <nil>
}

// A handler reads large outputs as streams, one after another.
func ExampleTask_EachInput() {
	client, mux := newClient(), tusk.NewMux()
	tusk.HandleKind(mux, "part", func(_ context.Context, t *tusk.Task[string]) error {
		return t.RecordOutput(t.Args + " is done")
	})
	tusk.HandleKind(mux, "report", func(ctx context.Context, t *tusk.Task[string]) error {
		for input, err := range t.EachInput(ctx) {
			if err != nil {
				return err
			}
			r, err := input.Content.Open(ctx)
			if err != nil {
				return err
			}
			defer r.Close()
			var text string
			if err := json.NewDecoder(r).Decode(&text); err != nil {
				return err
			}
			fmt.Println(input.Name+":", text)
		}
		return nil
	})
	ctx, cancel := context.WithCancel(context.Background())
	w := tusk.NewWorkflow()
	left := w.Task("left", tusk.RawArgs{Name: "part", JSON: json.RawMessage(`"this"`)}, nil)
	right := w.Task("right", tusk.RawArgs{Name: "part", JSON: json.RawMessage(`"that"`)}, nil)
	w.Task("report", tusk.RawArgs{Name: "report", JSON: json.RawMessage(`""`)}, nil).After(left, right)
	_, _ = client.EnqueueWorkflow(ctx, w)
	worker, _ := tusk.NewWorker(client, mux, nil)
	events, _ := worker.Subscribe(tusk.EventCompleted)
	done := make(chan error)
	go func() { done <- worker.Run(ctx) }()
	for range 3 {
		<-events
	}
	cancel()
	<-done
	// Output:
	// left: this is done
	// right: that is done
}
