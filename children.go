package tusk

import (
	"context"
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
