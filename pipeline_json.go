package tusk

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/tuskqueue/tusk/internal/lifecycle"
	"github.com/tuskqueue/tusk/store"
)

// MaxStages is the maximum number of stages of a pipeline.
const MaxStages = 100

// MaxJumps is the maximum number of times that a run of a pipeline may go back to an earlier stage or repeat the
// same one. At the next jump back, the stage's task is discarded with its output; it can be retried once the stage
// no longer goes back. To wait for something, return Snooze instead.
const MaxJumps = 1000

// pipelineAge is the maximum age of a process's copy of the pipelines.
const pipelineAge = time.Second

// PipelineStage is the JSON form of a stage of a pipeline.
type PipelineStage struct {
	Name         string        `json:"name"`
	Kind         string        `json:"kind,omitempty"`  // of its tasks: always "pipeline.stage"
	Queue        string        `json:"queue,omitempty"` // default: its kind
	Tenant       string        `json:"tenant,omitempty"`
	Partition    string        `json:"partition,omitempty"`
	Priority     int16         `json:"priority,omitempty"`
	Tags         []string      `json:"tags,omitempty"`
	MaxAttempts  int           `json:"max_attempts,omitempty"`
	Timeout      durationText  `json:"timeout,omitempty"` // for example 30s
	StallTimeout durationText  `json:"stall_timeout,omitempty"`
	DeadlineIn   durationText  `json:"deadline_in,omitempty"`
	Backoff      *StageBackoff `json:"backoff,omitempty"`
	Weight       int           `json:"weight,omitempty"`
}

// StageBackoff is the JSON form of a Backoff.
type StageBackoff struct {
	Shape  string       `json:"shape,omitempty"` // constant, linear or exponential
	Base   durationText `json:"base,omitempty"`
	Max    durationText `json:"max,omitempty"`
	Jitter float64      `json:"jitter,omitempty"` // 0 to 1
}

// ParsePipeline parses a pipeline from JSON: {"stages":[{"name":"fetch"},{"name":"parse",…},…]}.
//
// The error is an *InvalidError that names the invalid stage.
func ParsePipeline(name string, text []byte) (*Pipeline, error) {
	var doc struct {
		Stages []PipelineStage `json:"stages"`
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&doc); err != nil {
		return nil, invalid("pipeline", "invalid_json", "%v", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, invalid("pipeline", "invalid_json", "has more after the first JSON value")
	}
	return pipelineOf(name, doc.Stages)
}

func pipelineOf(name string, stages []PipelineStage) (*Pipeline, error) {
	p := NewPipeline(name)
	for _, s := range stages {
		o, err := s.options()
		if err != nil {
			return nil, fmt.Errorf("stage %s: %w", cutText(s.Name), err)
		}
		if s.Kind != "" && s.Kind != p.kind(s.Name) {
			return nil, invalid("kind", "not_for_stages", "of stage %s is %q: leave it out, it is always %s", cutText(s.Name),
				cutText(s.Kind), cutText(p.kind(s.Name)))
		}
		p.Stage(s.Name, o)
	}
	return p, p.check()
}

// check validates a pipeline as a whole.
func (p *Pipeline) check() error {
	switch {
	case p.err != nil:
		return p.err
	case len(p.stages) == 0 || len(p.stages) > MaxStages:
		return invalid("pipeline", "out_of_range", "has %d stages, want 1 to %d", len(p.stages), MaxStages)
	}
	for _, s := range p.stages {
		if _, err := encodeOptions(&s.options); err != nil {
			return fmt.Errorf("stage %s: %w", s.name, err)
		}
	}
	return nil
}

func (s *PipelineStage) options() (*Options, error) {
	o := &Options{Queue: s.Queue, Tenant: s.Tenant, Partition: s.Partition, Priority: s.Priority, Tags: s.Tags,
		MaxAttempts: s.MaxAttempts, Weight: s.Weight}
	texts := durationTexts{"timeout": {s.Timeout, &o.Timeout}, "stall_timeout": {s.StallTimeout, &o.StallTimeout},
		"deadline_in": {s.DeadlineIn, &o.DeadlineIn}}
	if b := s.Backoff; b != nil {
		o.Backoff.Shape, o.Backoff.Jitter = lifecycle.Shape(b.Shape), b.Jitter
		texts["base"], texts["max"] = durationField{b.Base, &o.Backoff.Base}, durationField{b.Max, &o.Backoff.Max}
	}
	return o, texts.parse()
}

// stage returns the JSON form of a stage.
func (p *Pipeline) stage(s pipelineStage) PipelineStage {
	o := s.options
	form := PipelineStage{Name: s.name, Kind: p.kind(s.name), Queue: o.Queue, Tenant: o.Tenant, Partition: o.Partition,
		Priority: o.Priority, Tags: o.Tags,
		MaxAttempts: o.MaxAttempts, Timeout: textOf(o.Timeout), StallTimeout: textOf(o.StallTimeout),
		DeadlineIn: textOf(o.DeadlineIn), Weight: o.Weight}
	if b := o.Backoff; b != (Backoff{}) {
		form.Backoff = &StageBackoff{Shape: string(b.Shape), Base: textOf(b.Base), Max: textOf(b.Max), Jitter: b.Jitter}
	}
	return form
}

func (p *Pipeline) encode() ([]byte, error) {
	stages := make([]PipelineStage, len(p.stages))
	for i, s := range p.stages {
		stages[i] = p.stage(s)
	}
	return json.Marshal(stages)
}

// DefinePipeline stores a pipeline, replacing one with the same name, so that workers in any language can run its
// stages: by the HTTP API, as webhooks, or as commands. Tasks in progress continue under the new definition. The
// call takes about a second: when it returns, every process knows the definition.
//
// A program that has handlers for stages of a pipeline with that name defines it again when it starts.
//
// The error is an *InvalidError if the input is invalid.
func (c *Client) DefinePipeline(ctx context.Context, p *Pipeline) error {
	if err := p.check(); err != nil {
		return err
	}
	body, err := p.encode()
	if err != nil {
		return err
	}
	if err := c.changeRecord(ctx, pipelineRecord, p.name, func([]byte) ([]byte, error) { return body, nil }); err != nil {
		return fmt.Errorf("pipeline %s: %w", p.name, err)
	}
	select {
	case <-ctx.Done():
	case <-time.After(pipelineAge):
	}
	return nil
}

// Pipeline returns a pipeline as the database knows it, to start runs of it. The error is ErrNotFound if it is not
// defined.
func (c *Client) Pipeline(ctx context.Context, name string) (*Pipeline, error) {
	r, err := c.record(ctx, pipelineRecord, name)
	if err != nil {
		return nil, fmt.Errorf("pipeline %s: %w", cutText(name), err)
	}
	if r.Body == nil {
		return nil, fmt.Errorf("pipeline %s: %w", cutText(name), ErrNotFound)
	}
	return readPipeline(r)
}

func readPipeline(r store.Record) (*Pipeline, error) {
	var stages []PipelineStage
	if err := json.Unmarshal(r.Body, &stages); err != nil {
		return nil, fmt.Errorf("pipeline %s: %w", r.Name, err)
	}
	return pipelineOf(r.Name, stages)
}

// definitions reads all pipelines that the database knows, except those that cannot be parsed.
func (c *Client) definitions(ctx context.Context) (all []*Pipeline, err error) {
	records, err := c.store.Records(ctx, pipelineRecord)
	if err != nil {
		return nil, fmt.Errorf("pipelines: %w", err)
	}
	for _, r := range records {
		p, err := readPipeline(r)
		if err != nil {
			c.config.Logger.Warn("pipelines: a definition cannot be read", "pipeline", r.Name, "error", err)
			continue
		}
		all = append(all, p)
	}
	return all, nil
}
