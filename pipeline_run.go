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
// The key of a run is that of the queue that the run is in at the time, so the database lets another run begin once the
// first stage is over. That one would overtake, or run beside, what it is to follow. Its first task therefore looks
// for the other run before its handler begins, and is put off while there is one: it keeps the key of its queue, so
// any number of updates meanwhile become this one run, with the newest. Whoever ends the other run has it look again at
// once; it also looks by itself, in case that goes wrong.

const (
	// A run that waits looks again after half of the time that it has existed, within these.
	shortestRunWait = 250 * time.Millisecond
	longestRunWait  = time.Minute
	// runUnknown is when it looks again after it could not.
	runUnknown = 5 * time.Second
)

// beginsRun reports whether a task is the first one of a run that must not be beside another one with its key.
func beginsRun(t *store.Task) bool {
	return t.Key != "" && t.Workflow.IsZero() && !ReservedKey(t.Key)
}

// RunAhead returns the task of another run of a pipeline that t waits for before it begins a run with the same key; nil
// if t begins none, or may begin. The guide has the rules.
func (c *Client) RunAhead(ctx context.Context, t *TaskInfo) (*TaskInfo, error) {
	other, err := c.runAhead(ctx, nil, &t.Task)
	if err != nil || other == nil {
		return nil, err
	}
	info := new(TaskInfo)
	return info, info.read(other)
}

// runAhead is RunAhead. A pipeline of nil is the one that the database knows. A stage that has failed and waits for its
// retry is not waited for: the new run takes its place when it comes there, as a Rerun does.
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
	if len(others) == 0 { // the key of the one queue is that of all stages
		return nil, nil
	}
	f := store.Filter{Key: t.Key, Tenants: []string{t.Tenant}, Queues: others,
		States: []store.State{store.Scheduled, store.Pending, store.Available, store.Running},
		NoArgs: true, Limit: 2 * len(others)} // who holds each of the keys, and who waits for that
	for range 2 { // some engines read in steps, and see neither of two stages if the run moves on between them
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

// awaitRun returns a snooze while another run of the pipeline with the key of t is at a stage, and nil when t may begin
// or begins no run. If that cannot be determined, t waits.
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

// runWait is how long a run waits that has found another one ahead of it when it was claimed.
func runWait(t *store.Task) time.Duration {
	wait := min(t.ClaimedAt.Sub(t.EnqueuedAt)/2, longestRunWait)
	var info TaskInfo
	if err := info.read(t); err == nil && !info.Deadline.IsZero() { // the other run may end before
		wait = min(wait, info.Deadline.Sub(t.ClaimedAt)/2)
	}
	return max(wait, shortestRunWait)
}

// awaitsRun reports whether a task was put off because of another run. Nothing keeps that but how long it was put off:
// one whose handler has put it off is left alone.
func awaitsRun(t *store.Task) bool {
	if t.State != store.Scheduled || t.ClaimedAt.IsZero() || !beginsRun(t) {
		return false
	}
	looked := t.RunAt.Sub(t.ClaimedAt) - runWait(t) // the time that the look took
	return looked > -time.Millisecond && looked < mostLook
}

// mostLook is how long a look for another run takes at most where awaitsRun knows the run that waits by it.
const mostLook = 200 * time.Millisecond

// runsAtOnce is how many tasks awaitRuns asks about at a time.
const runsAtOnce = 8

// awaitRuns is awaitRun for many tasks, of pipelines that the database knows.
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

// comesBefore reports whether a run that begins with t waits for another task. Of two that both are to begin, at
// different stages, the one with the lower id does, unless its time is yet to come.
func comesBefore(o, t *store.Task) bool {
	if o.State == store.Scheduled && o.ClaimedAt.IsZero() {
		return false
	}
	if o.Workflow.IsZero() {
		return bytes.Compare(o.ID[:], t.ID[:]) < 0
	}
	return o.Workflow != t.ID
}

// has reports whether a kind is that of a stage.
func (p *Pipeline) has(kind string) bool {
	return slices.ContainsFunc(p.stages, func(s pipelineStage) bool { return p.kind(s.name) == kind })
}

// pipelineOf returns the pipeline of which a kind is a stage, if one of its stages is handled here. The database may
// not know of it yet.
func (m *Mux) pipelineOf(kind string) *Pipeline {
	if i := slices.IndexFunc(m.pipelines, func(p *Pipeline) bool { return p.has(kind) }); i >= 0 {
		return m.pipelines[i]
	}
	return nil
}
