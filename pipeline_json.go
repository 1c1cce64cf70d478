package tusk

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tuskqueue/tusk/internal/form"
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
	Timeout      DurationText  `json:"timeout,omitempty"` // for example 30s
	StallTimeout DurationText  `json:"stall_timeout,omitempty"`
	DeadlineIn   DurationText  `json:"deadline_in,omitempty"`
	Backoff      *StageBackoff `json:"backoff,omitempty"`
	Weight       int           `json:"weight,omitempty"`
}

// StageBackoff is the JSON form of a Backoff. JSON may contain the text that ParseBackoff reads instead.
type StageBackoff struct {
	Shape  string       `json:"shape,omitempty"` // constant, linear or exponential
	Base   DurationText `json:"base,omitempty"`
	Max    DurationText `json:"max,omitempty"`
	Jitter float64      `json:"jitter,omitempty"` // 0 to 1
}

// UnmarshalJSON implements json.Unmarshaler.
func (b *StageBackoff) UnmarshalJSON(text []byte) error {
	if text[0] == '{' {
		type members StageBackoff
		return json.Unmarshal(text, (*members)(b))
	}
	var short string
	if err := json.Unmarshal(text, &short); err != nil {
		return fmt.Errorf("is %s: want %s, or an object with shape, base, max and jitter", cutText(string(text)),
			backoffForm)
	}
	parsed, err := ParseBackoff(short)
	if bad := (*InvalidError)(nil); errors.As(err, &bad) {
		return errors.New(bad.Text) // the caller adds the place
	}
	*b = backoffJSON(parsed)
	return err
}

func backoffJSON(b Backoff) StageBackoff {
	return StageBackoff{Shape: string(b.Shape), Base: textOf(b.Base), Max: textOf(b.Max), Jitter: b.Jitter}
}

// into copies a backoff to to, except for its durations, which it adds to texts to be parsed.
func (b *StageBackoff) into(to *Backoff, texts durationTexts) {
	if b != nil {
		to.Shape, to.Jitter = lifecycle.Shape(b.Shape), b.Jitter
		texts["base"], texts["max"] = durationField{b.Base, &to.Base}, durationField{b.Max, &to.Max}
	}
}

// readForm decodes a JSON document. The error names the place of a mistake.
func readForm(what string, text []byte, into any) error {
	var wrong *form.Error
	if err := form.Read(text, into); errors.As(err, &wrong) {
		return &InvalidError{cmp.Or(wrong.Place, what), wrong.Code, wrong.Text}
	} else if err != nil {
		return invalid(what, "invalid_json", "%v", err)
	}
	return nil
}

// ParsePipeline parses a pipeline from JSON: {"stages":[{"name":"fetch"},{"name":"parse",…},…]}.
//
// The error is an *InvalidError that names the invalid stage.
func ParsePipeline(name string, text []byte) (*Pipeline, error) {
	var doc struct {
		Stages []PipelineStage `json:"stages"`
	}
	if err := readForm("pipeline", text, &doc); err != nil {
		return nil, err
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
	s.Backoff.into(&o.Backoff, texts)
	return o, texts.parse()
}

// stage returns the JSON form of a stage.
func (p *Pipeline) stage(s pipelineStage) PipelineStage {
	o := s.options
	out := PipelineStage{Name: s.name, Kind: p.kind(s.name), Queue: o.Queue, Tenant: o.Tenant, Partition: o.Partition,
		Priority: o.Priority, Tags: o.Tags,
		MaxAttempts: o.MaxAttempts, Timeout: textOf(o.Timeout), StallTimeout: textOf(o.StallTimeout),
		DeadlineIn: textOf(o.DeadlineIn), Weight: o.Weight}
	if b := o.Backoff; b != (Backoff{}) {
		backoff := backoffJSON(b)
		out.Backoff = &backoff
	}
	return out
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
	for i := range stages {
		if b := stages[i].Backoff; b != nil && b.Base == "" && *b != (StageBackoff{}) {
			*b = backoffJSON(atOnce) // see storedBackoff
		}
	}
	return pipelineOf(r.Name, stages)
}

// definitions reads all pipelines that the database knows, except those that cannot be parsed.
func (c *Client) definitions(ctx context.Context) (all []*Pipeline, err error) {
	records, err := c.store.Records(ctx, store.RecordFilter{Kind: pipelineRecord})
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
