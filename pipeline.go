package tusk

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/tuskqueue/tusk/internal/lifecycle"
)

// Pipeline is a fixed sequence of stages that a task passes through. Each stage has its own queue, workers,
// retries and statistics. The output of a stage is the input of the next, and a task finishes a stage and moves to
// the next in a single write.
//
// Go programs register stage handlers with HandleStage. Workers in any language can run a stage if the database
// knows the pipeline: a worker with a stage handler registers it, and so does DefinePipeline.
//
// The kind of a stage's tasks is "pipeline.stage", and so is their queue unless the stage's options set another.
// Depth, age and statistics by queue and kind are therefore those of the stages, and a stuck stage shows as a queue
// whose oldest task keeps growing older.
type Pipeline struct {
	name   string
	stages []pipelineStage
	err    error // the first mistake made in building it
}

type pipelineStage struct {
	name    string
	options Options
}

// NewPipeline creates a pipeline without stages. Mistakes in building it are reported when it is used.
func NewPipeline(name string) *Pipeline {
	return &Pipeline{name: name, err: ValidateName("pipeline", name)}
}

// Stage adds a stage at the end. o may be nil. A stage cannot set run time, delay, expiry, key, id or metadata.
func (p *Pipeline) Stage(name string, o *Options) *Pipeline {
	s := pipelineStage{name: name}
	if o != nil {
		s.options = *o
	}
	p.fail(ValidateName("stage", name))
	p.fail(ValidateName("stage", p.kind(name)))
	if p.index(name) >= 0 {
		p.fail(invalid("stage", "duplicate_stage", "%q is in the pipeline twice", name))
	}
	if o := s.options; o.Key != "" || o.Unique != nil || !o.ID.IsZero() || o.Metadata != nil ||
		!o.RunAt.IsZero() || o.Delay != 0 || !o.ExpiresAt.IsZero() || o.ExpiresIn != 0 {
		p.fail(invalid("stage", "not_for_stages", "%q cannot set run time, delay, expiry, key, id or metadata", name))
	}
	setDefault(&s.options.Queue, p.kind(name))
	p.stages = append(p.stages, s)
	return p
}

// Start returns the args of a task that enters the pipeline at its first stage: client.Enqueue(ctx,
// pipeline.Start(input), nil).
func (p *Pipeline) Start(input any) Args { return stageArgs{pipeline: p, input: input} }

// StartAt is like Start, but for the named stage.
func (p *Pipeline) StartAt(stage string, input any) Args {
	return stageArgs{pipeline: p, stage: p.index(stage), asked: stage, input: input}
}

// Queues lists the queues of all stages, for a worker that runs the whole pipeline.
func (p *Pipeline) Queues() []string {
	var queues []string
	for _, s := range p.stages {
		queues = append(queues, s.options.Queue)
	}
	slices.Sort(queues)
	return slices.Compact(queues)
}

// HandleStage registers the handler of a stage. Its return value is the input of the next stage, or of another
// stage with GoTo; the last stage's is the output of the task. An error is retried under the stage's own policy.
// Only the handler of the last stage can call CompleteTx. That ends the run: the return value then has no effect.
func HandleStage[In, Out any](
	m *Mux, p *Pipeline, stage string, fn func(ctx context.Context, t *Task[In]) (Out, error), options ...HandlerOption,
) {
	if err := errors.Join(p.check(), p.mustHave(stage)); err != nil {
		if m.err == nil {
			m.err = err
		}
		return
	}
	if fn == nil {
		HandleKind[In](m, p.kind(stage), nil, options...)
		return
	}
	if !slices.Contains(m.pipelines, p) {
		m.pipelines = append(m.pipelines, p)
	}
	HandleKind(m, p.kind(stage), func(ctx context.Context, t *Task[In]) error {
		if p.index(stage)+1 < len(p.stages) {
			t.attempt.SetMovesOn()
		}
		out, err := fn(ctx, t)
		next := p.index(stage) + 1
		var jump *goTo
		if errors.As(err, &jump) {
			if next = p.index(jump.stage); next < 0 && jump.stage != "" {
				return withOutput(t, out, Discard(p.mustHave(jump.stage)))
			}
		} else if err != nil {
			return err
		}
		if next < 0 || next == len(p.stages) {
			return t.RecordOutput(out)
		}
		then, err := t.client.moveOn(ctx, &t.TaskInfo, stageArgs{pipeline: p, stage: next, input: out})
		if err == nil {
			t.attempt.SetNext(then)
		} else if stop := new(lifecycle.StopError); errors.As(err, &stop) { // no next stage receives the output
			return withOutput(t, out, err)
		}
		return err
	}, options...)
}

// withOutput records the output of a task that ends with err. If the output cannot be stored now, the attempt fails
// instead, so that it is not lost.
func withOutput[In, Out any](t *Task[In], out Out, err error) error {
	failed := t.RecordOutput(out)
	if failed != nil && !errors.As(failed, new(*InvalidError)) {
		return failed
	}
	return errors.Join(err, failed)
}

// GoTo is returned by a stage's handler, together with its output, to continue at another stage than the next,
// including an earlier one. An empty name ends the pipeline. As the Err of a Verdict it does the same for a lent
// task.
func GoTo(stage string) error { return &goTo{stage} }

type goTo struct{ stage string }

func (g *goTo) Error() string { return "go to stage " + g.stage }

// stageArgs are the args of a stage's task.
type stageArgs struct {
	pipeline *Pipeline
	stage    int
	asked    string // the name that StartAt was given
	input    any
}

func (a stageArgs) Kind() string {
	if a.stage < 0 || a.stage >= len(a.pipeline.stages) {
		return ""
	}
	return a.pipeline.kind(a.pipeline.stages[a.stage].name)
}

// problem returns the reason why there is no such stage.
func (a stageArgs) problem() error {
	if a.pipeline.err != nil {
		return a.pipeline.err
	}
	return a.pipeline.mustHave(a.asked)
}

func (a stageArgs) Options() Options {
	if a.Kind() == "" {
		return Options{}
	}
	return a.pipeline.stages[a.stage].options
}

func (a stageArgs) MarshalJSON() ([]byte, error) {
	if a.pipeline.err != nil {
		return nil, a.pipeline.err
	}
	return json.Marshal(a.input)
}

func (p *Pipeline) kind(stage string) string { return p.name + "." + stage }

func (p *Pipeline) index(stage string) int {
	return slices.IndexFunc(p.stages, func(s pipelineStage) bool { return s.name == stage })
}

func (p *Pipeline) mustHave(stage string) error {
	if p.index(stage) >= 0 {
		return nil
	}
	var names []string
	for _, s := range p.stages {
		names = append(names, s.name)
	}
	return invalid("stage", "unknown_stage", "%q is not in the pipeline %s, which has %s", cutText(stage), p.name,
		cmp.Or(strings.Join(names, ", "), "no stage"))
}

func (p *Pipeline) fail(err error) {
	if p.err == nil {
		p.err = err
	}
}
