package tusk

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/internal/lifecycle"
	"github.com/tuskqueue/tusk/store"
)

// How a run of a pipeline waits for another one with its key.
//
// A run holds its key only in the queue of its current stage, so the database lets another run begin once the first
// stage is over. The second run would overlap or overtake the first. Therefore the first task of a run checks for
// another run before its handler begins, and is postponed while there is one. It keeps the key in its queue, so any
// number of updates in the meantime become this one run, with the newest values. The process that ends the other run
// makes the waiting run check again at once. The waiting run also checks by itself, in case that fails.

const (
	// A waiting run checks again after half of the time that it has existed, within these limits.
	shortestRunWait = 250 * time.Millisecond
	longestRunWait  = time.Minute
	// runUnknown is the pause after a check that failed.
	runUnknown = 5 * time.Second
)

// beginsRun reports whether a task is the first of a run that must not overlap another run with its key.
func beginsRun(t *store.Task) bool {
	return t.Key != "" && t.Workflow.IsZero() && !ReservedKey(t.Key)
}

// RunAhead returns the task of another run of a pipeline that t waits for before it begins a run with the same key. It
// returns nil if t does not begin a run, or need not wait. The guide has the rules.
func (c *Client) RunAhead(ctx context.Context, t *TaskInfo) (*TaskInfo, error) {
	other, err := c.runAhead(ctx, nil, &t.Task)
	if err != nil || other == nil {
		return nil, err
	}
	info := new(TaskInfo)
	return info, info.read(other)
}

// runAhead is RunAhead. If p is nil, it is read from the database. A run does not wait for a stage that has failed and
// waits for its retry: the new run replaces that task when it reaches the stage, as a Rerun does.
func (c *Client) runAhead(ctx context.Context, p *Pipeline, t *store.Task) (*store.Task, error) {
	if !beginsRun(t) {
		return nil, nil
	}
	if p == nil {
		var err error
		if p, _, err = c.pipelines.find(ctx, c, t.Kind); p == nil || err != nil {
			return nil, err
		}
	}
	others := slices.DeleteFunc(p.Queues(), func(queue string) bool { return queue == t.Queue })
	if len(others) == 0 { // all stages share one queue, and therefore the key
		return nil, nil
	}
	f := store.Filter{Key: t.Key, Tenants: []string{t.Tenant}, Queues: others,
		States: []store.State{store.Scheduled, store.Pending, store.Available, store.Running},
		NoArgs: true, Limit: 2 * len(others)} // in each queue, one task holds the key and one may wait for it
	for range 2 { // some engines read in steps, and may miss a run that moves on between two of them
		tasks, err := c.store.List(ctx, f)
		if err != nil {
			return nil, err
		}
		for i := range tasks {
			if p.has(tasks[i].Kind) && comesBefore(&tasks[i], t) {
				return &tasks[i], nil
			}
		}
	}
	return nil, nil
}

// awaitRun returns a snooze while another run of the pipeline with the key of t is at a stage. It returns nil if t
// may begin or does not begin a run. If that cannot be determined, t waits.
func (c *Client) awaitRun(ctx context.Context, p *Pipeline, t *store.Task) error {
	switch other, err := c.runAhead(ctx, p, t); {
	case err != nil && c.pipelines.lacks(t.Kind):
		return nil
	case err != nil:
		c.config.Logger.Warn("run: other runs of a key could not be looked for", "task", t.ID, "error", err)
		return &lifecycle.SnoozeError{Delay: runUnknown, Unbegun: true}
	case other == nil:
		return nil
	}
	return &lifecycle.SnoozeError{Delay: runWait(t), Unbegun: true}
}

// runWait returns how long a run is postponed if it found another one ahead of it when it was claimed.
func runWait(t *store.Task) time.Duration {
	wait := min(t.ClaimedAt.Sub(t.EnqueuedAt)/2, longestRunWait)
	var info TaskInfo
	if err := info.read(t); err == nil && !info.Deadline.IsZero() { // the other run may end before the deadline
		wait = min(wait, info.Deadline.Sub(t.ClaimedAt)/2)
	}
	return max(wait, shortestRunWait)
}

// awaitsRun reports whether a task, read with its Detail, was postponed because of another run and has not been
// rescheduled since.
func awaitsRun(t *store.Task) bool {
	return t.State == store.Scheduled && beginsRun(t) && lifecycle.Unbegun(t) &&
		(t.Detail.Changed == nil || !t.Detail.Changed.At.After(t.ClaimedAt))
}

// runsAtOnce is how many tasks awaitRuns queries at a time.
const runsAtOnce = 8

// awaitRuns is awaitRun for many tasks, whose pipelines it reads from the database.
func (c *Client) awaitRuns(ctx context.Context, tasks []store.Task) []error {
	waits, slots := make([]error, len(tasks)), make(chan struct{}, runsAtOnce)
	var g sync.WaitGroup
	for i := range tasks {
		if beginsRun(&tasks[i]) {
			slots <- struct{}{}
			g.Go(func() {
				defer func() { <-slots }()
				waits[i] = c.awaitRun(ctx, nil, &tasks[i])
			})
		}
	}
	g.Wait()
	return waits
}

// comesBefore reports whether a run that begins with t waits for the task o of another run. If both runs are to begin,
// at different stages, the one with the lower id comes first, unless it is scheduled for later.
func comesBefore(o, t *store.Task) bool {
	if o.State == store.Scheduled && o.ClaimedAt.IsZero() {
		return false
	}
	if o.Workflow.IsZero() {
		return bytes.Compare(o.ID[:], t.ID[:]) < 0
	}
	return o.Workflow != t.ID
}

// has reports whether a kind is the kind of a stage.
func (p *Pipeline) has(kind string) bool {
	return slices.ContainsFunc(p.stages, func(s pipelineStage) bool { return p.kind(s.name) == kind })
}

// pipelineOf returns the pipeline that has a stage of a kind, if the mux handles one of its stages. The database may
// not know the pipeline yet.
func (m *Mux) pipelineOf(kind string) *Pipeline {
	if i := slices.IndexFunc(m.pipelines, func(p *Pipeline) bool { return p.has(kind) }); i >= 0 {
		return m.pipelines[i]
	}
	return nil
}
