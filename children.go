package tusk

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/tuskqueue/tusk/internal/lifecycle"
	"github.com/tuskqueue/tusk/store"
)

// Spawn adds a child to a running task: it is enqueued when the handler returns
// Wait, and the task waits for it then. The child belongs to the task's workflow
// and tenant. Options may be nil.
func (t *Task[T]) Spawn(ctx context.Context, args Args, o *Options) (ID, error) {
	var with Options
	if o != nil {
		with = *o
	}
	setDefault(&with.Tenant, t.Tenant)
	n, err := t.client.encode(NewTask{Args: args, Options: &with})
	if err != nil {
		return ID{}, err
	}
	if n.Tenant != t.Tenant {
		return ID{}, invalid("tenant", "other_tenant", "of a child is %q, its parent's is %q", n.Tenant, t.Tenant)
	}
	if n.Key != "" {
		return ID{}, invalid("key", "not_for_children", "is not for a child: another task could stand in its place")
	}
	if n.Workflow = t.Workflow; n.Workflow.IsZero() {
		n.Workflow = t.ID
	}
	child := []store.NewTask{n}
	if err := t.client.takeTurns(ctx, child); err != nil {
		return ID{}, err
	}
	if err := t.client.config.KeyRing.seal(&child[0]); err != nil {
		return ID{}, err
	}
	if count := t.attempt.AddChild(child[0]); count > MaxWorkflow {
		return ID{}, invalid("children", "too_many", "are %d, at most %d are allowed", count, MaxWorkflow)
	}
	return n.ID, nil
}

// Wait is returned by a handler that has spawned children: the task is pending
// until all of them have ended, however they did, and runs again then. The
// attempt does not count. Inputs tells what they came to.
func Wait() error { return lifecycle.ErrWait }

// Input is a task that another one needed: a parent in a workflow, or a child that
// it waited for.
type Input struct {
	ID     ID
	Name   string // in a workflow
	Kind   string
	State  State // 0: it was deleted
	Output json.RawMessage
}

// Inputs returns what the task needed, with outputs, in the order in which the
// needs were named. It is empty when the task needed nothing, such as before the
// first Wait.
func (t *Task[T]) Inputs(ctx context.Context) ([]Input, error) {
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
			input.Name, input.Kind, input.State, input.Output = task.Node, task.Kind, task.State, task.Detail.Output
		}
	}
	return inputs, nil
}

// WorkflowInfo is a workflow as it stands.
type WorkflowInfo struct {
	ID     ID
	Tasks  []TaskInfo    // oldest first
	States map[State]int // how many are in each
}

// Done reports whether all tasks have finished.
func (w *WorkflowInfo) Done() bool {
	n := 0
	for state, count := range w.States {
		if state.Finished() {
			n += count
		}
	}
	return n == len(w.Tasks)
}

// Workflow returns a workflow: one that was enqueued as such, the run of a
// pipeline, or a task with its children; these go by the id of their first task.
//
// The error is ErrNotFound when no task belongs to it.
func (c *Client) Workflow(ctx context.Context, id ID) (*WorkflowInfo, error) {
	w := &WorkflowInfo{ID: id, States: map[State]int{}}
	if first, err := c.List(ctx, Filter{IDs: []ID{id}, Detail: true}); err != nil {
		return nil, err
	} else if len(first) > 0 && first[0].Workflow.IsZero() {
		w.Tasks = append(w.Tasks, first[0])
	}
	page := Filter{Workflow: id, Detail: true, Limit: store.MaxPage}
	var members []TaskInfo
	for {
		tasks, err := c.List(ctx, page)
		if err != nil {
			return nil, err
		}
		members = append(members, tasks...)
		if len(tasks) < store.MaxPage {
			break
		}
		page.Before = tasks[len(tasks)-1].ID
	}
	for i := len(members) - 1; i >= 0; i-- {
		w.Tasks = append(w.Tasks, members[i])
	}
	for _, t := range w.Tasks {
		w.States[t.State]++
	}
	if len(w.Tasks) == 0 {
		return nil, fmt.Errorf("workflow %s: %w", id, ErrNotFound)
	}
	return w, nil
}

// CancelWorkflow cancels all tasks of a workflow that have not finished and says
// how many; running ones are told to stop.
func (c *Client) CancelWorkflow(ctx context.Context, id ID, reason string) (int, error) {
	return c.editWorkflow(ctx, id, Change{Op: store.Cancel, Reason: reason}, func(s State) bool { return !s.Finished() })
}

// RetryWorkflow retries all tasks of a workflow that were discarded or cancelled:
// those that need others wait for them again. It says how many.
func (c *Client) RetryWorkflow(ctx context.Context, id ID) (int, error) {
	return c.editWorkflow(ctx, id, Change{Op: store.Retry}, func(s State) bool { return s == store.Discarded || s == store.Cancelled })
}

// editWorkflow changes the tasks that are in a chosen state, parents first.
func (c *Client) editWorkflow(ctx context.Context, id ID, change Change, chosen func(State) bool) (changed int, err error) {
	w, err := c.Workflow(ctx, id)
	if err != nil {
		return 0, err
	}
	var ids []ID
	for _, t := range w.Tasks {
		if chosen(t.State) {
			ids = append(ids, t.ID)
		}
	}
	for len(ids) > 0 {
		part := ids[:min(len(ids), store.MaxPage)]
		edited, err := c.Edit(ctx, part, change)
		if err != nil {
			return changed, err
		}
		for _, e := range edited {
			if e.Result == store.Changed || e.Result == store.Requested {
				changed++
			}
		}
		ids = ids[len(part):]
	}
	return changed, nil
}
