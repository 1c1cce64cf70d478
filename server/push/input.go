package push

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/tuskqueue/tusk"
)

const (
	maxInputs = 512 << 10       // bytes of outputs in a webhook; many programs take a body of at most 1 MiB
	readAgain = 5 * time.Second // after inputs that could not be read
)

// Input is a task that another task needed: a parent in its workflow, or a child that it waited for.
type Input struct {
	ID     string          `json:"id"`
	Name   string          `json:"name,omitempty" doc:"its name in the workflow"`
	Kind   string          `json:"kind,omitempty"`
	State  string          `json:"state,omitempty" doc:"absent: it was deleted"`
	Output json.RawMessage `json:"output,omitempty" doc:"absent if there is none, or it is large"`
	Large  *LargeContent   `json:"large_output,omitempty" doc:"the output is kept outside the database: GET /lease/inputs/{id} has it"`
}

// LargeContent describes args or an output that are kept outside the database.
type LargeContent struct {
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// InputOf returns an input as JSON shows it.
func InputOf(input tusk.Input) Input {
	v := Input{ID: input.ID.String(), Name: input.Name, Kind: input.Kind, Output: input.Output}
	if input.State != 0 {
		v.State = input.State.String()
	}
	if input.Content.Large() {
		v.Large = &LargeContent{input.Content.Size(), input.Content.SHA256()}
	}
	return v
}

// addInputs adds to a message what its task needed. Tasks without a workflow are not looked up: only a task that has
// waited for children of its own could have inputs then, and it can ask for them.
func (s *sender) addInputs(ctx context.Context, m *Data, l *tusk.Lent) error {
	if l.Workflow.IsZero() {
		return nil
	}
	page, more, err := s.puller.FirstInputs(ctx, l.Receipt, maxInputs)
	switch {
	case err == nil:
	case errors.Is(err, tusk.ErrLeaseLost), ctx.Err() != nil:
		return err
	default: // an attempt cannot fix this, so it is not counted
		s.log.Warn("push: inputs", "task", l.ID, "error", err)
		return tusk.Snooze(readAgain)
	}
	for _, input := range page {
		m.Inputs = append(m.Inputs, InputOf(input))
	}
	if more {
		m.NextInputs = page[len(page)-1].ID.String()
	}
	return nil
}
