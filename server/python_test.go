package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/access"
)

// The worker in Python completes a task, and retries another one whose first step it does not repeat.
func TestTheExampleInPythonWorks(t *testing.T) {
	s := start(t)
	python := exec.Command("python3", "../examples/python/worker.py")
	python.Env = append(os.Environ(), "TUSK_URL="+s.URL,
		"TUSK_TOKEN="+s.tokenFor(access.Token{Name: "w", Role: access.Worker}))
	python.Stderr = os.Stderr
	if err := python.Start(); err != nil {
		t.Fatal(err)
	}
	defer python.Process.Kill()
	mux := tusk.NewMux()
	tusk.HandleFunc(mux, func(context.Context, stepped) error { return nil })
	leader, err := tusk.NewWorker(s.client, mux, &tusk.WorkerConfig{Queues: []string{"none"}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	led := make(chan error, 1)
	go func() { led <- leader.Run(ctx) }()
	defer func() { stop(); <-led }()
	for _, soldOut := range []bool{false, true} {
		r, err := s.client.Enqueue(t.Context(),
			tusk.RawArgs{Name: "order", JSON: fmt.Appendf(nil, `{"sold_out":%v}`, soldOut)},
			&tusk.Options{Queue: "orders", Backoff: tusk.ConstantBackoff(time.Millisecond)})
		if err != nil {
			t.Fatal(err)
		}
		task, err := s.client.Await(t.Context(), r.ID)
		if err != nil {
			t.Fatal(err)
		}
		var output struct {
			Charged int `json:"charged_in_attempt"`
			Shipped int `json:"shipped_in_attempt"`
		}
		if err := json.Unmarshal(task.Detail.Output, &output); err != nil {
			t.Fatal(err)
		}
		want := map[bool]int{false: 1, true: 2}[soldOut]
		if task.State != tusk.StateCompleted || output.Charged != 1 || output.Shipped != want {
			t.Errorf("%v: %s", task.State, task.Detail.Output)
		}
	}
	_ = python.Process.Signal(syscall.SIGTERM)
	if err := python.Wait(); err != nil {
		t.Errorf("the worker did not stop by itself: %v", err)
	}
}
