package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/tuskqueue/tusk"
)

// Scenarios that run a graph.
const (
	benchWorkflow = "workflow"
	benchFan      = "fan"

	benchWidth = 100 // tasks in a layer
)

// graph returns the workflow of a scenario. Its tasks are named by their number.
func (r *benchRun) graph() *tusk.Workflow {
	w, n, width := tusk.NewWorkflow(), r.flags.tasks, benchWidth
	if r.flags.scenario == benchFan {
		width = n
	}
	args := tusk.RawArgs{Name: benchKind, JSON: json.RawMessage(fmt.Sprintf(benchForm, 0, 0) + `,"pad":"` + r.pad + `"}`)}
	add := func() *tusk.Node {
		n--
		return w.Task(fmt.Sprint("t", n), args, &tusk.Options{Queue: r.flags.queue})
	}
	before := []*tusk.Node{add()}
	for n > 1 {
		layer := make([]*tusk.Node, min(width, n-1))
		for i := range layer {
			layer[i] = add().After(before[i%len(before)])
			if len(before) > 1 {
				layer[i].After(before[(i+1)%len(before)])
			}
		}
		before = layer
	}
	if n == 1 {
		add().After(before...)
	}
	return w
}

// workflow measures one graph from its enqueue until its last task has ended.
func (r *benchRun) workflow(ctx context.Context, report *benchReport) (time.Duration, error) {
	var run tusk.WorkflowRun
	took, err := r.live(ctx, report, func() (err error) {
		run, err = r.client.EnqueueWorkflow(ctx, r.graph())
		return err
	})
	if err != nil {
		return 0, err
	}
	info, err := r.client.Workflow(ctx, run.ID)
	if err == nil && info.States[tusk.StateCompleted] != r.flags.tasks {
		err = fmt.Errorf("bench: the workflow ended with %v", info.States)
	}
	return took, err
}
