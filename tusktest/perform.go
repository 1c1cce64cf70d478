package tusktest

import (
	"context"
	"encoding/json"

	"github.com/tuskqueue/tusk"
)

// Perform enqueues a task and runs one attempt of it, to test a handler. The handler gets a
// real task: it can log, record an output, enqueue, spawn, and complete in a transaction.
// Perform returns the outcome of the attempt, and the task as stored afterwards.
func (w *Worker) Perform(args tusk.Args, o *tusk.Options) (*Ran, *tusk.TaskInfo) {
	w.t.Helper()
	w.busy.Lock()
	defer w.busy.Unlock()
	ctx := context.Background()
	enqueued, err := w.kit.Client.Enqueue(ctx, args, o)
	if err != nil {
		w.t.Fatalf("tusktest: %v", err)
	}
	for {
		ran := w.step()
		if ran == nil {
			w.t.Fatalf(
				"tusktest: task %s was %v, but is not available: does it wait for its time, or is its queue not among %v?",
				enqueued.ID, enqueued.Result, w.queues)
		}
		if ran.Task.ID != enqueued.ID {
			continue // it was enqueued earlier
		}
		task, err := w.kit.Client.Get(ctx, enqueued.ID)
		if err != nil {
			w.t.Fatalf("tusktest: %v", err)
		}
		return ran, task
	}
}

// OutputOf decodes the output that a task has recorded.
func OutputOf[T any](k *Kit, task *tusk.TaskInfo) (output T) {
	k.t.Helper()
	if task.Detail == nil || task.Detail.Output == nil {
		k.t.Fatalf("tusktest: task %s has recorded no output", task.ID)
	}
	if err := json.Unmarshal(task.Detail.Output, &output); err != nil {
		k.t.Fatalf("tusktest: the output of task %s does not fit %T: %v", task.ID, output, err)
	}
	return output
}
