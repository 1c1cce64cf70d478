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

	errs, err := puller.Finish(ctx, []tusk.Verdict{{Receipt: receipt, Output: json.RawMessage(`"hello Ada"`)}})
	task, _ := client.Get(ctx, receipt.ID)
	fmt.Println(errs[0], err, task.State, string(task.Detail.Output))
	cancel()
	<-done
	// Output:
	// 1 <nil> {"name":"Ada"} 1
	// greet false <nil>
	// <nil> <nil> completed "hello Ada"
}
