package tusk

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/tuskqueue/tusk/internal/lifecycle"
	"github.com/tuskqueue/tusk/store"
)

// Spawn adds a child to a running task. The child is enqueued when the handler returns Wait; the task then waits for
// it. If the task completes instead, the child is enqueued and nothing waits for it: a stage of a pipeline then
// moves on without its children. After any other end of the attempt it is not enqueued. The child belongs to the
// task's workflow and tenant. o may be nil.
func (t *Task[T]) Spawn(ctx context.Context, args Args, o *Options) (ID, error) {
	if t.attempt == nil {
		return ID{}, fmt.Errorf("spawn: %w", errMadeUp)
	}
	var with Options
	if o != nil {
		with = *o
	}
	setDefault(&with.Tenant, t.Tenant)
	n, err := t.client.encodeBy(ctx, &t.TaskInfo, NewTask{Args: args, Options: &with})
	if err != nil {
		return ID{}, err
	}
	if n.Workflow = t.Workflow; n.Workflow.IsZero() {
		n.Workflow = t.ID
	}
	if n.Settings, err = lifecycle.WithTraceContext(n.Settings, t.TraceContext); err != nil {
		return ID{}, err
	}
	child := []store.NewTask{n}
	if err := t.client.present(ctx, child); err != nil {
		return ID{}, err
	}
	// Hooks may have changed the child.
	if of := child[0].Tenant; of != t.Tenant {
		return ID{}, invalid("tenant", "other_tenant", "of a child is %q, its parent's is %q", of, t.Tenant)
	}
	if child[0].Key != "" {
		return ID{}, invalid("key", "not_for_children", "is not for a child: another task could stand in its place")
	}
	if err := t.client.conceal(ctx, t.ID, child); err != nil {
		return ID{}, err
	}
	if count := t.attempt.AddChild(child[0]); count > MaxWorkflow {
		return ID{}, invalid("children", "too_many", "are %d, at most %d are allowed", count, MaxWorkflow)
	}
	return child[0].ID, nil
}

// Wait is returned by a handler that has spawned children: the task is pending until all of them have ended,
// whatever their outcome, and then runs again. The attempt does not count. Inputs returns their outcomes. Without
// children, Wait is an error like any other: the attempt fails.
func Wait() error { return lifecycle.ErrWait }

// Input is a task that another task needed: a parent in a workflow, or a child that it waited for.
type Input struct {
	ID     ID
	Name   string // in a workflow
	Kind   string
	State  State // 0 if it was deleted
	Output json.RawMessage
}

// Inputs returns the tasks that this task needed, with their outputs, in the order in which they were added. All
// outputs, even large ones, are read into memory. The result is empty if the task needed nothing, for example
// before the first Wait.
func (t *Task[T]) Inputs(ctx context.Context) ([]Input, error) {
	if t.attempt == nil {
		return nil, fmt.Errorf("inputs: %w", errMadeUp)
	}
	self, err := t.client.Get(ctx, t.ID)
	if err != nil {
		return nil, fmt.Errorf("inputs: %w", err)
	}
	inputs := make([]Input, len(self.Detail.Needs))
	at := map[ID]int{}
	for i, n := range self.Detail.Needs {
		inputs[i] = Input{ID: n.Task, State: n.State}
		at[n.Task] = i
	}
	for rest := self.Detail.Needs; len(rest) > 0; rest = rest[min(len(rest), store.MaxPage):] {
		var ids []ID
		for _, n := range rest[:min(len(rest), store.MaxPage)] {
			ids = append(ids, n.Task)
		}
		tasks, err := t.client.List(ctx, Filter{IDs: ids, Detail: true, Limit: store.MaxPage})
		if err != nil {
			return nil, fmt.Errorf("inputs: %w", err)
		}
		for _, task := range tasks {
			input := &inputs[at[task.ID]]
			input.Name, input.Kind, input.State = task.Node, task.Kind, task.State
			if input.Output, err = t.client.OutputOf(&task).Bytes(ctx); err != nil {
				return nil, fmt.Errorf("inputs: output of task %s: %w", task.ID, err)
			}
		}
	}
	return inputs, nil
}
