package tusk_test

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/tuskqueue/tusk"
)

// A puller lends tasks to external workers, and takes their verdicts. The server's pull API
// is built on it.
func ExampleClient_NewPuller() {
	ctx, cancel := context.WithCancel(context.Background())
	client := newClient()
	puller := client.NewPuller()
	done := make(chan error)
	go func() { done <- puller.Run(ctx) }()

	_, _ = client.Enqueue(ctx, Greet{Name: "Ada"}, nil)
	lent, err := puller.Claim(ctx, tusk.Pull{Queues: []string{"default"}, Lease: time.Minute, Wait: 10 * time.Second})
	fmt.Println(len(lent), err, string(lent[0].TaskInfo.Args), puller.Lent())

	receipt, _ := tusk.ParseReceipt(lent[0].Receipt.String()) // as sent over the network
	tasks, _ := puller.Find(ctx, []tusk.Receipt{receipt})
	extended := puller.Extend(ctx, tusk.Extension{Receipt: receipt, Lease: time.Minute})
	fmt.Println(tasks[0].Kind, extended[0].Cancelled, extended[0].Err)

	kept, err := puller.KeepStep(ctx, receipt, "charge", json.RawMessage(`{"id": 7}`))
	steps, _ := puller.Steps(ctx, receipt)
	fmt.Println(string(kept), err, len(steps))

	errs, err := puller.Finish(ctx, []tusk.Verdict{{Receipt: receipt, Output: json.RawMessage(`"hello Ada"`)}})
	task, _ := client.Get(ctx, receipt.ID)
	fmt.Println(errs[0], err, task.State, string(task.Detail.Output))
	cancel()
	<-done
	// Output:
	// 1 <nil> {"name":"Ada"} 1
	// greet false <nil>
	// {"id":7} <nil> 1
	// <nil> <nil> completed "hello Ada"
}

// A lent task spawns a child and waits for it. Both are lent to external workers.
func ExampleVerdict() {
	ctx, cancel := context.WithCancel(context.Background())
	client := newClient()
	puller := client.NewPuller()
	done := make(chan error)
	go func() { done <- puller.Run(ctx) }()
	next := func() tusk.Lent {
		lent, _ := puller.Claim(ctx, tusk.Pull{Queues: []string{"default"}, Wait: 10 * time.Second})
		return lent[0]
	}

	limit := time.Minute
	_, _ = client.Enqueue(ctx, tusk.RawArgs{Name: "album"}, nil)
	_, err := puller.Finish(ctx, []tusk.Verdict{{Receipt: next().Receipt, Err: tusk.Wait(),
		Children: []tusk.ChildTask{{Kind: "picture", Args: json.RawMessage(`"a.png"`),
			Timeout: tusk.DurationText(limit.String())}}}})
	child := next()
	fmt.Println(child.Kind, string(child.TaskInfo.Args), child.Timeout, err)
	_, _ = puller.Finish(ctx, []tusk.Verdict{{Receipt: child.Receipt, Output: json.RawMessage("1200")}})

	parent := next() // it runs again
	inputs, _, err := puller.Inputs(ctx, parent.Receipt, tusk.ID{})
	fmt.Println(parent.Kind, inputs[0].State, string(inputs[0].Output), err)
	cancel()
	<-done
	// Output:
	// picture "a.png" 1m0s <nil>
	// album completed 1200 <nil>
}

// A program that runs code in other languages reads the children from it.
func ExampleParseChild() {
	client, mux := newClient(), tusk.NewMux()
	tusk.HandleKind(mux, "album", func(ctx context.Context, t *tusk.Task[json.RawMessage]) error {
		args, options, err := tusk.ParseChild([]byte(`{"kind":"picture","args":"a.png","delay":"1h","tags":["png"]}`))
		if err == nil {
			_, err = t.Spawn(ctx, args, options)
		}
		return err
	})
	ctx, cancel := context.WithCancel(context.Background())
	worker, _ := tusk.NewWorker(client, mux, nil)
	events, _ := worker.Subscribe(tusk.EventCompleted)
	done := make(chan error)
	go func() { done <- worker.Run(ctx) }()
	_, _ = client.Enqueue(ctx, tusk.RawArgs{Name: "album"}, nil)
	<-events
	children, _ := client.List(ctx, tusk.Filter{Kinds: []string{"picture"}})
	fmt.Println(children[0].State, children[0].Tags)
	_, _, err := tusk.ParseChild([]byte(`{"kind":"picture","delai":"1h"}`))
	fmt.Println(err)
	cancel()
	<-done
	// Output:
	// scheduled [png]
	// child: unknown field "delai"; did you mean delay?
}
