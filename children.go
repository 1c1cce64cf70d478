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
	child, err := t.client.child(ctx, &t.TaskInfo, args, o)
	if err != nil {
		return ID{}, err
	}
	children := []store.NewTask{child}
	if err := t.client.prepareChildren(ctx, &t.TaskInfo, children); err != nil {
		return ID{}, err
	}
	if n := t.attempt.AddChild(children[0]); n > MaxWorkflow {
		return ID{}, tooManyChildren(n)
	}
	return children[0].ID, nil
}

func tooManyChildren(n int) error {
	return invalid("children", "too_many", "are %d, at most %d are allowed", n, MaxWorkflow)
}

// child creates a child of a task. o may be nil.
func (c *Client) child(ctx context.Context, parent *TaskInfo, args Args, o *Options) (n store.NewTask, err error) {
	var with Options
	if o != nil {
		with = *o
	}
	setDefault(&with.Tenant, parent.Tenant)
	if n, err = c.encodeBy(ctx, parent, NewTask{Args: args, Options: &with}); err != nil {
		return n, err
	}
	if n.Workflow = parent.Workflow; n.Workflow.IsZero() {
		n.Workflow = parent.ID
	}
	n.Settings, err = lifecycle.WithTraceContext(n.Settings, parent.TraceContext)
	return n, err
}

// prepareChildren is prepare for children of a task.
func (c *Client) prepareChildren(ctx context.Context, parent *TaskInfo, children []store.NewTask) error {
	if err := c.present(ctx, children); err != nil {
		return err
	}
	for i := range children { // hooks may have changed them
		if of := children[i].Tenant; of != parent.Tenant {
			return invalid("tenant", "other_tenant", "of a child is %q, its parent's is %q", of, parent.Tenant)
		}
		if children[i].Key != "" {
			return invalid("key", "not_for_children", "is not for a child: another task could stand in its place")
		}
	}
	return c.conceal(ctx, parent.ID, children)
}

// Wait is returned by a handler that has spawned children: the task is pending until all of them have ended,
// whatever their outcome, and then runs again. The attempt does not count. Inputs returns their outcomes. Without
// children, Wait is an error like any other: the attempt fails. It is also the Err of a Verdict with Children.
func Wait() error { return lifecycle.ErrWait }
