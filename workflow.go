package tusk

import (
	"context"
	"fmt"

	"github.com/tuskqueue/tusk/internal/lifecycle"
	"github.com/tuskqueue/tusk/store"
)

// MaxWorkflow is the maximum number of tasks of a workflow when it is enqueued.
const MaxWorkflow = 10000

// MaxWorkflowEdges is the maximum number of dependencies between the tasks of a workflow.
const MaxWorkflowEdges = 50000

// OnFailure says what happens to a task when one of its parents fails.
type OnFailure = store.OnFailure

// The policies; see package store.
const (
	CancelOnFailure   = store.CancelOnFailure   // it is cancelled, and so are its descendants
	ContinueOnFailure = store.ContinueOnFailure // it runs anyway
	WaitOnFailure     = store.WaitOnFailure     // it waits for a retry of the failed parent, until that is deleted
)

// Workflow is a graph of tasks. Each task runs when its parents have ended. Build it, then pass it to
// Client.EnqueueWorkflow.
type Workflow struct {
	nodes []*Node
	names map[string]*Node
	err   error // the first mistake made in building it
}

// Node is a task of a workflow.
type Node struct {
	workflow *Workflow
	name     string
	args     Args
	options  Options
	after    []*Node
	last     bool // it comes after all nodes that are not last
	policy   OnFailure
	id       ID
}

// NewWorkflow creates an empty workflow. Mistakes in building it are reported when it is enqueued.
func NewWorkflow() *Workflow { return &Workflow{names: map[string]*Node{}} }

// Task adds a task with a unique name. o may be nil.
func (w *Workflow) Task(name string, args Args, o *Options) *Node {
	n := &Node{workflow: w, name: name, args: args}
	if o != nil {
		n.options = *o
	}
	w.fail(ValidateName("task name", name))
	if w.names[name] != nil {
		w.fail(invalid("workflow", "duplicate_name", "has two tasks of the name %q", cutText(name)))
	}
	w.nodes, w.names[name] = append(w.nodes, n), n
	return n
}

// After makes the task wait for other tasks of the workflow, its parents.
func (n *Node) After(parents ...*Node) *Node {
	for _, p := range parents {
		if p == nil || p.workflow != n.workflow {
			n.workflow.fail(invalid("workflow", "unknown_parent", "task %q comes after one that is not in the workflow", n.name))
			continue
		}
		n.after = append(n.after, p)
	}
	return n
}

// OnFailure sets what happens to the task when one of its parents fails. Default: CancelOnFailure.
func (n *Node) OnFailure(p OnFailure) *Node { n.policy = p; return n }

// OnSuccess adds a task that runs when all others have completed, except those added by OnSuccess or OnFinish. It
// is cancelled if one of them fails permanently.
func (w *Workflow) OnSuccess(name string, args Args, o *Options) *Node {
	n := w.Task(name, args, o)
	n.last = true
	return n
}

// OnFinish adds a task that runs when all others have ended, whatever their outcome. The task reads the outcomes
// with Inputs.
func (w *Workflow) OnFinish(name string, args Args, o *Options) *Node {
	return w.OnSuccess(name, args, o).OnFailure(ContinueOnFailure)
}

// settle makes the last nodes depend on all others.
func (w *Workflow) settle() {
	var others []*Node
	for _, n := range w.nodes {
		if !n.last {
			others = append(others, n)
		}
	}
	for _, n := range w.nodes {
		if n.last {
			n.after = others
		}
	}
}

// WorkflowRun is an enqueued workflow.
type WorkflowRun struct {
	ID    ID
	Tasks map[string]ID // ids by task name
}

// EnqueueWorkflow validates a workflow and stores it in one call to the engine. A workflow may be enqueued more
// than once; each time it is a separate run.
//
// The error is an *InvalidError for a cycle, a duplicate name, a parent from another workflow, tasks of different
// tenants, or more than MaxWorkflow tasks.
func (c *Client) EnqueueWorkflow(ctx context.Context, w *Workflow) (WorkflowRun, error) {
	return c.enqueueWorkflow(ctx, c.store, w)
}

// EnqueueWorkflowTx is like EnqueueWorkflow, but inside the caller's own transaction.
func (c *Client) EnqueueWorkflowTx(ctx context.Context, tx any, w *Workflow) (WorkflowRun, error) {
	inside, err := c.inTx(tx)
	if err != nil {
		return WorkflowRun{}, err
	}
	return c.enqueueWorkflow(ctx, inside, w)
}

func (c *Client) enqueueWorkflow(ctx context.Context, into store.Enqueuer, w *Workflow) (WorkflowRun, error) {
	sorted, err := w.sorted()
	if err != nil {
		return WorkflowRun{}, err
	}
	run := WorkflowRun{ID: NewID(), Tasks: make(map[string]ID, len(sorted))}
	tasks := make([]store.NewTask, len(sorted))
	for i, n := range sorted {
		if tasks[i], err = c.encode(NewTask{Args: n.args, Options: &n.options}); err != nil {
			return WorkflowRun{}, fmt.Errorf("task %s: %w", n.name, err)
		}
		if tasks[i].Key != "" {
			return WorkflowRun{}, invalid("workflow", "not_for_workflows",
				"task %q has a key: another task could stand in its place", n.name)
		}
		n.id = tasks[i].ID
		run.Tasks[n.name] = n.id
		tasks[i].Workflow = run.ID
		for _, p := range n.after {
			tasks[i].Needs = append(tasks[i].Needs, store.Need{Task: p.id, OnFailure: n.policy})
		}
		if tasks[i].Settings, err = lifecycle.WithNode(tasks[i].Settings, n.name); err != nil {
			return WorkflowRun{}, err
		}
	}
	_, err = c.put(ctx, into, tasks)
	return run, err
}

// sorted returns the nodes with parents before children.
func (w *Workflow) sorted() ([]*Node, error) {
	switch {
	case w.err != nil:
		return nil, w.err
	case len(w.nodes) == 0:
		return nil, invalid("workflow", "empty", "has no tasks")
	case len(w.nodes) > MaxWorkflow:
		return nil, invalid("workflow", "too_large", "has %d tasks, at most %d are allowed", len(w.nodes), MaxWorkflow)
	}
	w.settle()
	open := make(map[*Node]int, len(w.nodes))
	children := make(map[*Node][]*Node, len(w.nodes))
	var ready, sorted []*Node
	edges := 0
	for _, n := range w.nodes {
		if edges += len(n.after); edges > MaxWorkflowEdges {
			return nil, invalid("workflow", "too_large",
				"has more than %d dependencies: put a task between many and many, which waits for the ones "+
					"and is waited for by the others", MaxWorkflowEdges)
		}
		if n.options.Tenant != w.nodes[0].options.Tenant {
			return nil, invalid("workflow", "other_tenant", "task %q belongs to tenant %q and task %q to %q",
				n.name, cutText(n.options.Tenant), w.nodes[0].name, cutText(w.nodes[0].options.Tenant))
		}
		if open[n] = len(n.after); open[n] == 0 {
			ready = append(ready, n)
		}
		for _, p := range n.after {
			children[p] = append(children[p], n)
		}
	}
	for len(ready) > 0 {
		n := ready[0]
		ready = ready[1:]
		sorted = append(sorted, n)
		for _, child := range children[n] {
			if open[child]--; open[child] == 0 {
				ready = append(ready, child)
			}
		}
	}
	if len(sorted) < len(w.nodes) {
		return nil, invalid("workflow", "dag_cycle", "has a cycle: %s", w.cycle(open))
	}
	return sorted, nil
}

// cycle describes a cycle among the nodes that could not be sorted.
func (w *Workflow) cycle(open map[*Node]int) string {
	var at *Node
	for _, n := range w.nodes {
		if open[n] > 0 {
			at = n
			break
		}
	}
	seen := map[*Node]bool{}
	for !seen[at] { // each of these has a parent that could not be sorted either
		seen[at] = true
		at = openParent(at, open)
	}
	text := at.name
	for n := openParent(at, open); n != at; n = openParent(n, open) {
		text += " after " + n.name
	}
	return text + " after " + at.name
}

func openParent(n *Node, open map[*Node]int) *Node {
	for _, p := range n.after {
		if open[p] > 0 {
			return p
		}
	}
	return n
}

func (w *Workflow) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}
