package server

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/query"
)

// Workflow is a graph of tasks, a run of a pipeline, or a task with its children.
type Workflow struct {
	ID     string           `json:"id"`
	Done   bool             `json:"done"`
	States map[string]int64 `json:"states"`
	Tasks  []WorkflowNode   `json:"tasks" doc:"oldest first"`
}

// WorkflowNode is a task of a workflow.
type WorkflowNode struct {
	Task
	Name  string         `json:"name,omitempty"`
	Needs []WorkflowNeed `json:"needs"`
}

// WorkflowNeed is a task that another task waits for.
type WorkflowNeed struct {
	ID    string `json:"id"`
	State string `json:"state,omitempty" doc:"absent: it was deleted"`
}

// WorkflowSummary is a workflow in a list.
type WorkflowSummary struct {
	ID     string           `json:"id"`
	Kinds  []string         `json:"kinds"`
	States map[string]int64 `json:"states"`
	Tasks  int              `json:"tasks"`
	More   bool             `json:"more,omitempty" doc:"there are more tasks than were counted"`
	Newest time.Time        `json:"newest"`
}

// WorkflowList is a list of workflows. Those with the newest tasks come first.
type WorkflowList struct {
	Workflows []WorkflowSummary `json:"workflows"`
	Looked    int               `json:"looked_at" doc:"the number of the newest tasks that were searched"`
	Next      string            `json:"next,omitempty" doc:"before, for the next list"`
}

// WorkflowRun is a workflow that was enqueued.
type WorkflowRun struct {
	ID    string            `json:"id"`
	Tasks map[string]string `json:"tasks" doc:"ids by name"`
}

type enqueueWorkflowInput struct {
	Body struct {
		Tasks []tusk.WorkflowTask `json:"tasks" minItems:"1" maxItems:"10000"`
	}
}

func enqueueWorkflow(c *call, in enqueueWorkflowInput) (WorkflowRun, error) {
	run := WorkflowRun{Tasks: map[string]string{}}
	for _, t := range in.Body.Tasks {
		if err := allowed(c.who, t.Queue, t.Tenant); err != nil {
			return run, err
		}
	}
	text, err := json.Marshal(in.Body)
	if err != nil {
		return run, err
	}
	w, err := tusk.ParseWorkflow(text)
	if err != nil {
		return run, err
	}
	stored, err := c.client.EnqueueWorkflow(c.r.Context(), w)
	if err != nil {
		return run, err
	}
	run.ID = stored.ID.String()
	for name, id := range stored.Tasks {
		run.Tasks[name] = id.String()
	}
	return run, nil
}

type listWorkflowsInput struct {
	Before string `query:"before" rule:"optional-id" doc:"next of the previous list"`
}

func listWorkflows(c *call, in listWorkflowsInput) (WorkflowList, error) {
	list := WorkflowList{Workflows: []WorkflowSummary{}}
	var before tusk.ID
	if in.Before != "" {
		var err error
		if before, err = tusk.ParseID(in.Before); err != nil && in.Before != before.String() {
			return list, err
		}
	}
	flows, looked, more, err := query.Workflows(c.r.Context(), c.client, c.who, tusk.Filter{Before: before},
		query.SurveyBudget)
	for _, f := range flows {
		list.Workflows = append(list.Workflows, WorkflowSummary{f.ID.String(), f.Kinds, f.States, f.Tasks, f.Most,
			utc(f.Newest)})
	}
	if list.Looked = looked; !more.IsZero() {
		list.Next = more.String()
	}
	return list, err
}

func getWorkflow(c *call, in byID) (Workflow, error) {
	v := Workflow{ID: in.ID.String(), Done: true, States: map[string]int64{}, Tasks: []WorkflowNode{}}
	w, err := c.client.Workflow(c.r.Context(), in.ID)
	if err != nil {
		return v, err
	}
	for _, t := range query.Part(w, c.who.Sees).Tasks {
		task := WorkflowNode{Task: c.view(t), Name: t.Node, Needs: []WorkflowNeed{}}
		for _, n := range t.Detail.Needs {
			need := WorkflowNeed{ID: n.Task.String()}
			if n.State != 0 {
				need.State = n.State.String()
			}
			task.Needs = append(task.Needs, need)
		}
		v.Tasks = append(v.Tasks, task)
		v.States[task.State]++
		v.Done = v.Done && t.State.Finished()
	}
	if len(v.Tasks) == 0 {
		return v, problem(http.StatusNotFound, "not_found", "workflow %s: not found", in.ID)
	}
	return v, nil
}

// WorkflowEdited says how many tasks were changed.
type WorkflowEdited struct {
	Changed int `json:"changed"`
}

func cancelWorkflow(c *call, in byID) (WorkflowEdited, error) {
	return c.editWorkflow(in.ID, func(ctx context.Context, id tusk.ID) (int, error) {
		return c.client.CancelWorkflow(ctx, id, "cancelled by "+c.who.Name+" with its workflow")
	})
}

type retryWorkflowInput struct {
	byID
	Body *struct {
		From string `json:"from,omitempty" rule:"value" doc:"name or id: it and all after it run again; default: all failed"`
	}
}

func retryWorkflow(c *call, in retryWorkflowInput) (WorkflowEdited, error) {
	if in.Body == nil || in.Body.From == "" {
		return c.editWorkflow(in.ID, c.client.RetryWorkflow)
	}
	c.detail = "from " + short(in.Body.From)
	return c.editWorkflow(in.ID, func(ctx context.Context, id tusk.ID) (int, error) {
		return c.client.RetryWorkflowFrom(ctx, id, in.Body.From)
	})
}

// editWorkflow changes a whole workflow, so all of its tasks have to be within the caller's bounds.
func (c *call) editWorkflow(id tusk.ID, change func(context.Context, tusk.ID) (int, error)) (WorkflowEdited, error) {
	c.target = id.String()
	seen, err := getWorkflow(c, byID{id})
	if err != nil {
		return WorkflowEdited{}, err
	}
	if w, err := c.client.Workflow(c.r.Context(), id); err != nil {
		return WorkflowEdited{}, err
	} else if len(w.Tasks) > len(seen.Tasks) {
		return WorkflowEdited{}, problem(http.StatusForbidden, "forbidden",
			"some tasks of this workflow are beyond the bounds of your %s", c.who.Via)
	}
	n, err := change(c.r.Context(), id)
	return WorkflowEdited{n}, err
}
