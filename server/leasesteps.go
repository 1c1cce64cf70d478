package server

import (
	"encoding/json"
	"maps"
	"slices"
)

// LeasedSteps are the steps of a leased task that have a result.
type LeasedSteps struct {
	Steps []LeasedStep `json:"steps" doc:"in the order of their names"`
}

// LeasedStep is the result of a step.
type LeasedStep struct {
	Name   string          `json:"name" rule:"name"`
	Result json.RawMessage `json:"result"`
}

type leasedStepsInput struct {
	LeaseID string `header:"Lease-Id" rule:"header" doc:"required: the lease_id of the task"`
}

func leasedSteps(c *call, in leasedStepsInput) (LeasedSteps, error) {
	out := LeasedSteps{Steps: []LeasedStep{}}
	r, err := c.leased(in.LeaseID)
	if err != nil {
		return out, err
	}
	steps, err := c.puller.Steps(c.r.Context(), r)
	for _, name := range slices.Sorted(maps.Keys(steps)) {
		out.Steps = append(out.Steps, LeasedStep{name, steps[name]})
	}
	return out, err
}

type keepStepInput struct {
	Body struct {
		LeaseID string          `json:"lease_id" rule:"lease"`
		Name    string          `json:"name" rule:"name" doc:"used once in the task"`
		Result  json.RawMessage `json:"result" doc:"any JSON; the names and results of a task have at most 256 KiB"`
	}
}

func keepStep(c *call, in keepStepInput) (LeasedStep, error) {
	b := in.Body
	r, err := c.leased(b.LeaseID)
	if err != nil {
		return LeasedStep{}, err
	}
	result, err := c.puller.KeepStep(c.r.Context(), r, b.Name, b.Result)
	return LeasedStep{b.Name, result}, err
}
