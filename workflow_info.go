package tusk

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/tuskqueue/tusk/store"
)

// WorkflowInfo is the current state of a workflow.
type WorkflowInfo struct {
	ID     ID
	Tasks  []TaskInfo    // oldest first; parents come before their children
	States map[State]int // number of tasks in each state
}

// Ended returns the number of tasks that have finished: the workflow's progress.
func (w *WorkflowInfo) Ended() int {
	n := 0
	for state, count := range w.States {
		if state.Finished() {
			n += count
		}
	}
	return n
}

// Done reports whether all tasks have finished.
func (w *WorkflowInfo) Done() bool { return w.Ended() == len(w.Tasks) }

// Node returns the task with that name or id, or nil if there is none.
func (w *WorkflowInfo) Node(name string) *TaskInfo {
	for i := range w.Tasks {
		if t := &w.Tasks[i]; t.Node == name || t.ID.String() == name {
			return t
		}
	}
	return nil
}

// after returns the ids of a task and of all its descendants.
func (w *WorkflowInfo) after(first ID) map[ID]bool {
	found := map[ID]bool{first: true}
	for _, t := range w.Tasks {
		for _, n := range t.Detail.Needs {
			if found[n.Task] {
				found[t.ID] = true
			}
		}
	}
	return found
}

// workflowBytes limits the args and outputs in a WorkflowInfo. Its first page has workflowStep tasks. Each later
// page has at most eight times as many as the one before, and half of workflowBytes judging by the tasks so far.
const (
	workflowBytes = 6 << 20
	workflowStep  = 16
)

// Workflow returns a workflow: one that was enqueued as such, the run of a pipeline, or a task with its children.
// The latter two have the id of their first task. Beyond 6 MiB of args and outputs in total, the older tasks come
// without args and outputs; read them with Get.
//
// The error is ErrNotFound if no task belongs to it.
func (c *Client) Workflow(ctx context.Context, id ID) (*WorkflowInfo, error) {
	w := &WorkflowInfo{ID: id, States: map[State]int{}}
	if id.IsZero() { // the filter would match all tasks
		return nil, fmt.Errorf("workflow %s: %w", id, ErrNotFound)
	}
	if first, err := c.List(ctx, Filter{IDs: []ID{id}, Detail: true}); err != nil {
		return nil, err
	} else if len(first) > 0 && first[0].Workflow.IsZero() {
		w.Tasks = append(w.Tasks, first[0])
	}
	page := Filter{Workflow: id, Detail: true, NoStates: true, Limit: workflowStep}
	size, loaded, members := 0, 0, 0 // bytes of args and outputs; the same with logs; tasks
	var pages [][]TaskInfo
	for {
		tasks, err := c.List(ctx, page)
		if err != nil {
			return nil, err
		}
		for i := range tasks {
			t := &tasks[i]
			large := len(t.Args) + len(t.Detail.Output)
			if size += large; size > workflowBytes {
				t.Args, t.Detail.Output, page.NoArgs = nil, nil, true
			}
			loaded += large
			for _, line := range t.Detail.Logs {
				loaded += len(line.Text)
			}
		}
		pages, members = append(pages, tasks), members+len(tasks)
		if len(tasks) < page.Limit {
			break
		}
		page.Before = tasks[len(tasks)-1].ID
		page.Limit = max(workflowStep, min(8*page.Limit, store.MaxPage, workflowBytes/2*members/(loaded+1)))
	}
	w.Tasks = slices.Grow(w.Tasks, members)
	for _, tasks := range slices.Backward(pages) {
		slices.Reverse(tasks)
		w.Tasks = append(w.Tasks, tasks...)
	}
	for i := range w.Tasks {
		w.States[w.Tasks[i].State]++
	}
	if len(w.Tasks) == 0 {
		return nil, fmt.Errorf("workflow %s: %w", id, ErrNotFound)
	}
	if err := c.tellNeeds(ctx, w); err != nil {
		return nil, err
	}
	return w, nil
}

// tellNeeds sets the states of the tasks that the workflow's tasks need.
func (c *Client) tellNeeds(ctx context.Context, w *WorkflowInfo) error {
	states := make(map[ID]State, len(w.Tasks))
	for i := range w.Tasks {
		states[w.Tasks[i].ID] = w.Tasks[i].State
	}
	others := map[ID]bool{}
	w.eachNeed(func(n *store.NeedState) {
		if _, member := states[n.Task]; !member {
			others[n.Task] = true
		}
	})
	for ids := range slices.Chunk(slices.Collect(maps.Keys(others)), store.MaxPage) {
		tasks, err := c.List(ctx, Filter{IDs: ids, NoArgs: true, Limit: len(ids)})
		if err != nil {
			return err
		}
		for i := range tasks {
			states[tasks[i].ID] = tasks[i].State
		}
	}
	w.eachNeed(func(n *store.NeedState) { n.State = states[n.Task] })
	return nil
}

func (w *WorkflowInfo) eachNeed(do func(*store.NeedState)) {
	for i := range w.Tasks {
		for at := range w.Tasks[i].Detail.Needs {
			do(&w.Tasks[i].Detail.Needs[at])
		}
	}
}

// CancelWorkflow cancels all unfinished tasks of a workflow and returns their number. Running tasks are told to
// stop. The error is ErrNotFound if no task belongs to the workflow.
func (c *Client) CancelWorkflow(ctx context.Context, id ID, reason string) (int, error) {
	w, err := c.Workflow(ctx, id)
	if err != nil {
		return 0, err
	}
	return c.editWorkflow(ctx, w, Change{Op: store.Cancel, Reason: reason}, func(t *TaskInfo) bool {
		return !t.State.Finished()
	})
}

// RetryWorkflow retries all discarded and cancelled tasks of a workflow and returns their number. Retried tasks
// wait for their parents again. The error is ErrNotFound if no task belongs to the workflow.
func (c *Client) RetryWorkflow(ctx context.Context, id ID) (int, error) {
	w, err := c.Workflow(ctx, id)
	if err != nil {
		return 0, err
	}
	return c.editWorkflow(ctx, w, Change{Op: store.Retry}, func(t *TaskInfo) bool {
		return t.State == store.Discarded || t.State == store.Cancelled
	})
}

// RetryWorkflowFrom runs a part of a workflow again: the task with a name or id, and all its descendants, failed
// or completed. Each task runs when its parents have ended again. Unfinished tasks stay as they are. It returns
// the number of tasks that run again.
//
// Errors: ErrNotFound; ErrRefused if the task has not finished.
func (c *Client) RetryWorkflowFrom(ctx context.Context, id ID, node string) (int, error) {
	w, err := c.Workflow(ctx, id)
	if err != nil {
		return 0, err
	}
	first := w.Node(node)
	switch {
	case first == nil:
		return 0, fmt.Errorf("workflow %s: task %q: %w", id, cutText(node), ErrNotFound)
	case !first.State.Finished():
		return 0, fmt.Errorf("retry from task %q: %w: it is %v", cutText(node), ErrRefused, first.State)
	}
	after := w.after(first.ID)
	return c.editWorkflow(ctx, w, Change{Op: store.Retry}, func(t *TaskInfo) bool {
		return t.State.Finished() && after[t.ID]
	})
}

// editWorkflow changes the chosen tasks, parents first.
func (c *Client) editWorkflow(
	ctx context.Context, w *WorkflowInfo, change Change, chosen func(*TaskInfo) bool,
) (changed int, err error) {
	var ids []ID
	for i := range w.Tasks {
		if chosen(&w.Tasks[i]) {
			ids = append(ids, w.Tasks[i].ID)
		}
	}
	for part := range slices.Chunk(ids, store.MaxPage) {
		edited, err := c.Edit(ctx, part, change)
		if err != nil {
			return changed, err
		}
		for _, e := range edited {
			if e.Result == store.Changed || e.Result == store.Requested {
				changed++
			}
		}
	}
	return changed, nil
}
