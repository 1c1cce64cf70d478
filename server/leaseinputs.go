package server

import (
	"net/http"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/push"
)

// This file serves the outputs of the tasks that a leased task needed. Whoever may work on a task may read them,
// whichever queues those tasks ran in: they are its input, like its args.

// LeasedInputs is a page of inputs.
type LeasedInputs struct {
	Inputs []push.Input `json:"inputs" doc:"in the order in which the task got its needs"`
	Next   string       `json:"next,omitempty" doc:"after, for the next page; absent on the last page"`
}

type leasedInputsInput struct {
	LeaseID string  `header:"Lease-Id" rule:"header" doc:"required: the lease_id of the task"`
	After   tusk.ID `query:"after" doc:"next of the previous page"`
}

func leasedInputs(c *call, in leasedInputsInput) (LeasedInputs, error) {
	out := LeasedInputs{Inputs: []push.Input{}}
	r, err := c.leased(in.LeaseID)
	if err != nil {
		return out, err
	}
	page, more, err := c.puller.Inputs(c.r.Context(), r, in.After)
	if err != nil {
		return out, err
	}
	for _, input := range page {
		out.Inputs = append(out.Inputs, push.InputOf(input))
	}
	if more {
		out.Next = page[len(page)-1].ID.String()
	}
	return out, nil
}

type leasedInputInput struct {
	LeaseID string  `header:"Lease-Id" rule:"header" doc:"required: the lease_id of the task"`
	ID      tusk.ID `path:"id" doc:"of the input"`
	Range   string  `header:"Range" rule:"range" doc:"such as bytes=1048576-2097151; only the first range counts"`
}

func downloadLeasedInput(c *call, in leasedInputInput) (nothing, error) {
	r, err := c.leased(in.LeaseID)
	if err != nil {
		return nothing{}, err
	}
	input, err := c.puller.Input(c.r.Context(), r, in.ID)
	if err != nil {
		return nothing{}, err
	}
	return nothing{}, c.giveOutput(input.Content, in.Range)
}

// giveOutput is give for an output, which may be missing.
func (c *call) giveOutput(content tusk.Content, asked string) error {
	if content.Size() == 0 {
		return problem(http.StatusNotFound, "no_output", "the task has no output")
	}
	return c.give(content, asked)
}

// idText returns the text of an id, or nothing for the zero id.
func idText(id tusk.ID) string {
	if id.IsZero() {
		return ""
	}
	return id.String()
}
