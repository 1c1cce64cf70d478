package tusk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/internal/gate"
	"github.com/tuskqueue/tusk/internal/lifecycle"
	"github.com/tuskqueue/tusk/internal/run"
	"github.com/tuskqueue/tusk/store"
)

// How a task moves to the next stage of its pipeline, whatever ran it.

// WithPipeline makes a completed task move on in the pipeline that its kind is a stage of, according to the
// database: the output that the handler recorded is the input of the next stage. A handler that returns GoTo also
// completes the task. Tasks of other kinds end as usual.
//
// It is for handlers that run external code. If the program itself has the Pipeline, use HandleStage, which does
// not need to read the database.
func WithPipeline() HandlerOption {
	return func(h *handler) {
		inner := h.run
		h.run = func(ctx context.Context, d delivery) error {
			if next, _, err := d.client.follows(ctx, d.task.Kind, nil); err != nil {
				return err
			} else if next != nil {
				d.attempt.SetMovesOn()
			}
			err := inner(ctx, d)
			if jump := new(goTo); err != nil && !errors.As(err, &jump) {
				return err
			}
			var info TaskInfo
			if err := d.describe(&info); err != nil {
				return err
			}
			var output json.RawMessage
			if note := d.attempt.Final(); note != nil {
				output = note.Output
			}
			longer, done := run.Linger(ctx)
			defer done()
			then, err := d.client.forward(longer, &info, output, err)
			if err == nil && then != nil {
				d.attempt.SetNext(then)
			}
			return err
		}
	}
}

// forward returns the task that follows a completed one: that of the next stage, or of the stage that end, a GoTo,
// names. It returns nil if the task does not belong to a stage or belongs to the last one.
func (c *Client) forward(ctx context.Context, t *TaskInfo, output json.RawMessage, end error) ([]store.NewTask, error) {
	p, stage, err := c.follows(ctx, t.Kind, end)
	if errors.Is(err, ErrInvalid) {
		return nil, Discard(err)
	} else if err != nil || p == nil {
		return nil, err
	}
	if len(output) == 0 {
		output = json.RawMessage("{}")
	}
	var input any = output
	if content := c.outputOf(output); content.Large() { // the next stage gets an object of its own
		input = content
	}
	return c.moveOn(ctx, t, stageArgs{pipeline: p, stage: stage, input: input})
}

// follows returns the stage that follows a completed task of a kind, and its pipeline, or nil if the run ends. The
// error is an *InvalidError if the end is a GoTo that the kind cannot follow.
func (c *Client) follows(ctx context.Context, kind string, end error) (*Pipeline, int, error) {
	p, stage, err := c.pipelines.find(ctx, c, kind)
	if err != nil {
		return nil, 0, err
	}
	jump := new(goTo)
	jumps := errors.As(end, &jump)
	switch {
	case p == nil && jumps:
		return nil, 0, invalid("go_to", "no_pipeline",
			"%s is no stage of a pipeline that the database knows: it cannot go to %q", kind, cutText(jump.stage))
	case p == nil, jumps && jump.stage == "":
		return nil, 0, nil
	case jumps:
		return p, p.index(jump.stage), p.mustHave(jump.stage)
	case stage+1 == len(p.stages):
		return nil, 0, nil
	}
	return p, stage + 1, nil
}

// moveOn creates the task of the next stage, to be enqueued when t completes. It belongs to the same run and
// inherits what describes t.
func (c *Client) moveOn(ctx context.Context, t *TaskInfo, args stageArgs) ([]store.NewTask, error) {
	jumps, err := args.jumps(t)
	if err != nil {
		return nil, err
	}
	o := Options{Tenant: t.Tenant, Partition: t.Partition, Tags: t.Tags, Metadata: t.Metadata}
	if args.Options().Priority == 0 {
		o.Priority = t.Priority
	}
	n, err := c.encodeBy(ctx, t, NewTask{Args: args, Options: &o})
	if err != nil && !errors.Is(err, ErrInvalid) {
		return nil, fmt.Errorf("stage %s: %w", args.Kind(), err)
	}
	if err != nil {
		return nil, Discard(fmt.Errorf("stage %s: %w", args.Kind(), err))
	}
	if n.Workflow = t.Workflow; n.Workflow.IsZero() {
		n.Workflow = t.ID
	}
	if n.Settings, err = lifecycle.WithTraceContext(n.Settings, t.TraceContext); err != nil {
		return nil, err
	}
	if n.Settings, err = keepKey(&n, t); err != nil {
		return nil, err
	}
	if n.Settings, err = lifecycle.WithJumps(n.Settings, jumps); err != nil {
		return nil, err
	}
	next := []store.NewTask{n}
	return next, c.prepare(ctx, t.ID, next)
}

// jumps returns how often the run of t will have gone back when it reaches the stage. It limits endless runs.
func (a stageArgs) jumps(t *TaskInfo) (int, error) {
	from := slices.IndexFunc(a.pipeline.stages, func(s pipelineStage) bool { return a.pipeline.kind(s.name) == t.Kind })
	switch {
	case a.stage > from:
		return t.Jumps, nil
	case t.Jumps >= MaxJumps:
		return 0, Discard(fmt.Errorf("pipeline %s: goes back to the stage %q, and its run has done so %d times, "+
			"which is the limit (MaxJumps): go on or end it, or to wait for something, snooze", a.pipeline.name,
			a.pipeline.stages[a.stage].name, MaxJumps))
	}
	return t.Jumps + 1, nil
}

// keepKey gives the next stage's task the key of its run, and returns its settings. The task is a rerun with the
// run's source time. So of several runs with a key, only one is at a stage at a time, and the newest is the last at
// each stage. Without a source time, the start of the run counts, which is later than any replacement of its args.
// Each stage adds a microsecond: a run must be newer than what its queue has seen of it, yet older than later runs.
func keepKey(n *store.NewTask, t *TaskInfo) ([]byte, error) {
	if t.Key == "" || ReservedKey(t.Key) || n.Tenant != t.Tenant {
		return n.Settings, nil
	}
	source := t.SourceTime
	if source.IsZero() {
		source = t.ClaimedAt
	}
	source = source.Add(time.Microsecond)
	n.Key, n.OnConflict, n.SourceTime = t.Key, Rerun, source
	return lifecycle.WithSource(n.Settings, source)
}

// pipelineCache caches the pipelines that the database knows for a short time.
type pipelineCache struct {
	reading gate.Gate

	mu     sync.Mutex
	read   time.Time
	places map[string]place // by kind
}

// place is a stage in its pipeline.
type place struct {
	pipeline *Pipeline
	stage    int
}

// find returns the pipeline that has a stage of that kind, and the index of the stage, at most pipelineAge old. It
// returns nil if there is none.
func (l *pipelineCache) find(ctx context.Context, c *Client, kind string) (*Pipeline, int, error) {
	if !strings.Contains(kind, ".") {
		return nil, 0, nil
	}
	at, fresh := l.at(kind)
	if fresh {
		return at.pipeline, at.stage, nil
	}
	if err := l.reading.Enter(ctx); err != nil {
		return nil, 0, fmt.Errorf("pipelines: %w", err)
	}
	defer l.reading.Leave()
	if at, fresh = l.at(kind); fresh { // another goroutine has read them
		return at.pipeline, at.stage, nil
	}
	asked := time.Now()
	all, err := c.definitions(ctx)
	if err != nil {
		return nil, 0, err
	}
	places := map[string]place{}
	for _, p := range all {
		for i, s := range p.stages {
			places[p.kind(s.name)] = place{p, i}
		}
	}
	l.mu.Lock()
	l.places, l.read = places, asked
	l.mu.Unlock()
	at = places[kind]
	return at.pipeline, at.stage, nil
}

// any reports whether the database knew any pipeline, at most pipelineAge ago.
func (l *pipelineCache) any(ctx context.Context, c *Client) (bool, error) {
	_, _, err := l.find(ctx, c, ".")
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.places) > 0, err
}

// at returns the stage of a kind as it was last read, and whether that was at most pipelineAge ago.
func (l *pipelineCache) at(kind string) (place, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.places[kind], !l.read.IsZero() && time.Since(l.read) < pipelineAge
}

// lacks reports whether no pipeline has a stage of a kind, as of the last read.
func (l *pipelineCache) lacks(kind string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.read.IsZero() && l.places[kind].pipeline == nil
}
