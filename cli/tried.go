package cli

import (
	"context"
	"encoding/json"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/internal/duration"
	"github.com/tuskqueue/tusk/store"
)

// This file shows what a dry run of an enqueue would store.

// nothingStored is the store of a dry run: everything that reaches it is valid.
type nothingStored struct {
	store.Store
	tried *[]store.NewTask // nil if nobody needs the tasks
}

func (n nothingStored) Enqueue(_ context.Context, tasks []store.NewTask) ([]store.Enqueued, error) {
	if n.tried != nil {
		*n.tried = append(*n.tried, tasks...)
	}
	return make([]store.Enqueued, len(tasks)), nil
}

// Records returns no limits of queues: a dry run has none.
func (nothingStored) Records(context.Context, store.RecordFilter) ([]store.Record, error) {
	return nil, nil
}

// triedRow is a task that would be stored.
type triedRow struct {
	Kind     string          `json:"kind" col:"KIND"`
	Queue    string          `json:"queue" col:"QUEUE"`
	Tenant   string          `json:"tenant,omitempty" one:"TENANT"`
	Priority int16           `json:"priority" col:"PRIORITY"`
	RunAt    *instant        `json:"run_at,omitempty"`
	Delay    string          `json:"delay,omitempty" one:"DELAY"`
	Key      string          `json:"key,omitempty" one:"KEY"`
	Tags     []string        `json:"tags,omitempty" one:"TAGS"`
	Args     json.RawMessage `json:"args,omitempty"`
	DryRun   bool            `json:"dry_run" one:"DRY_RUN"`
}

func triedOf(n store.NewTask) triedRow {
	row := triedRow{Kind: n.Kind, Queue: n.Queue, Tenant: n.Tenant, Priority: n.Priority, Key: n.Key, Tags: n.Tags,
		Args: n.Args, DryRun: true}
	if !n.RunAt.IsZero() {
		row.RunAt = (*instant)(&n.RunAt)
	}
	if n.Delay > 0 {
		row.Delay = duration.Text(n.Delay)
	}
	return row
}

// triedNode is a task of a workflow that would be stored.
type triedNode struct {
	Name  string   `json:"name" col:"NAME"`
	After []string `json:"after" col:"AFTER"`
	triedRow
}

// triedWorkflow names the tasks of a workflow, and the tasks that each one comes after.
func triedWorkflow(run tusk.WorkflowRun, tasks []store.NewTask) []triedNode {
	names := map[tusk.ID]string{}
	for name, id := range run.Tasks {
		names[id] = name
	}
	return rowsOf(tasks, func(n store.NewTask) triedNode {
		return triedNode{names[n.ID], rowsOf(n.Needs, func(of store.Need) string { return names[of.Task] }), triedOf(n)}
	})
}

// stageNames returns the stages of a definition that was parsed before.
func stageNames(text []byte) []string {
	var doc struct {
		Stages []tusk.PipelineStage `json:"stages"`
	}
	_ = json.Unmarshal(text, &doc) // it was parsed before
	return rowsOf(doc.Stages, func(s tusk.PipelineStage) string { return s.Name })
}

// definedRow is a pipeline that was or would be defined.
type definedRow struct {
	Name   string   `json:"name" col:"NAME"`
	Stages []string `json:"stages" col:"STAGES"`
	Queues []string `json:"queues" col:"QUEUES"`
	DryRun bool     `json:"dry_run" one:"DRY_RUN"`
}
