package builtin_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/builtin"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// works is a worker that runs during a test.
type works struct {
	*testing.T
	client *tusk.Client
	stop   func()
}

func work(t *testing.T, register func(m *tusk.Mux), change ...func(c *tusk.WorkerConfig)) *works {
	t.Helper()
	return workOn(t, memory.New(), register, change...)
}

func workOn(t *testing.T, s store.Store, register func(m *tusk.Mux), change ...func(c *tusk.WorkerConfig)) *works {
	t.Helper()
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	client, err := tusk.NewClient(s, &tusk.ClientConfig{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	mux := tusk.NewMux()
	register(mux)
	config := &tusk.WorkerConfig{Lease: 3 * time.Second, Beat: 100 * time.Millisecond, Poll: 10 * time.Millisecond,
		ShutdownTimeout: 50 * time.Millisecond}
	for _, change := range change {
		change(config)
	}
	worker, err := tusk.NewWorker(client, mux, config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := worker.Run(ctx); err != nil {
			t.Errorf("worker: %v", err)
		}
	}()
	w := &works{T: t, client: client, stop: func() { cancel(); <-done }}
	t.Cleanup(w.stop)
	return w
}

// enqueue stores a task. It is not retried unless o says so.
func (w *works) enqueue(kind, args string, o *tusk.Options) tusk.ID {
	w.Helper()
	if o == nil {
		o = &tusk.Options{MaxAttempts: 1}
	}
	enqueued, err := w.client.Enqueue(context.Background(), tusk.RawArgs{Name: kind, JSON: json.RawMessage(args)}, o)
	if err != nil {
		w.Fatal(err)
	}
	return enqueued.ID
}

// await waits until the task meets a condition.
func (w *works) await(id tusk.ID, until func(*tusk.TaskInfo) bool) *tusk.TaskInfo {
	w.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for {
		task, err := w.client.Get(context.Background(), id)
		if err != nil {
			w.Fatal(err)
		}
		if until(task) {
			return task
		}
		if time.Now().After(deadline) {
			w.Fatalf("task stays %v: %s", task.State, lastError(task))
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// ended runs a task to its end.
func (w *works) ended(kind, args string) *tusk.TaskInfo {
	w.Helper()
	return w.await(w.enqueue(kind, args, nil), func(t *tusk.TaskInfo) bool { return t.State.Finished() })
}

func lastError(t *tusk.TaskInfo) string {
	if t.Detail == nil || len(t.Detail.Attempts) == 0 {
		return ""
	}
	return t.Detail.Attempts[len(t.Detail.Attempts)-1].Error
}

func TestEchoGivesBackItsArgs(t *testing.T) {
	w := work(t, builtin.Echo)
	task := w.ended(builtin.KindEcho, `{"hello":"world"}`)
	if task.State != tusk.StateCompleted || string(task.Detail.Output) != `{"hello":"world"}` {
		t.Fatalf("%v, output %s", task.State, task.Detail.Output)
	}
}
