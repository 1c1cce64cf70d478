package tusk

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/tuskqueue/tusk/internal/run"
	"github.com/tuskqueue/tusk/store"
)

// Steps returns the results of the steps of a lent task, by name; see Step. Another process may have lent the task.
//
// Errors: ErrLeaseLost, ErrLentElsewhere, or an error of the database.
func (p *Puller) Steps(ctx context.Context, r Receipt) (map[string]json.RawMessage, error) {
	a, err := p.withSteps(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("steps: %w", err)
	}
	defer a.LeaveSteps()
	return a.Steps(), nil
}

// KeepStep stores the result of a step of a lent task and returns it once it is stored. If the step already has a
// result, that stays, and KeepStep returns it.
//
// Errors: those of Steps; an *InvalidError if the name is no name, if the result is not JSON, or if the steps exceed
// MaxSteps or MaxStepBytes; the context's if that ends before the result is stored. After any other error, repeat the
// call.
func (p *Puller) KeepStep(
	ctx context.Context, r Receipt, name string, result json.RawMessage,
) (json.RawMessage, error) {
	if err := ValidateName("name", name); err != nil {
		return nil, err
	}
	text, err := encodeStep(name, result)
	if err != nil {
		return nil, err
	}
	a, err := p.withSteps(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("step %s: %w", name, err)
	}
	defer a.LeaveSteps()
	first, stored, err := a.EndStep(name, text)
	if err != nil {
		return nil, stepProblem(name, err)
	}
	p.heart.Note()
	for {
		select {
		case <-stored:
			return first, p.confirm(ctx, r, name)
		case <-ctx.Done():
			return nil, fmt.Errorf("step %s: its result may not be stored: %w", name, context.Cause(ctx))
		case <-time.After(stepLook):
			if p.attempt(r) != a {
				return nil, fmt.Errorf("step %s: %w", name, ErrLeaseLost)
			}
		}
	}
}

// confirm checks that a step of another puller's loan has a result. A ledger that does not have the task may have
// answered the beat that took it there.
func (p *Puller) confirm(ctx context.Context, r Receipt, name string) error {
	if p.guests.attempt(r) == nil {
		return nil
	}
	t, err := p.leased(ctx, r)
	if err == nil && run.Results(t.Detail.Logs)[name] == nil {
		err = store.ErrUnavailable
	}
	if err != nil {
		return fmt.Errorf("step %s: its result may not be stored, repeat the request: %w", name, err)
	}
	return nil
}

// leased reads a lent task.
func (p *Puller) leased(ctx context.Context, r Receipt) (*store.Task, error) {
	t, err := p.client.detailed(ctx, r.ID)
	if err == nil && (t.State != store.Running || t.Lease != r.Lease) {
		err = ErrLeaseLost
	}
	return t, err
}

// withSteps returns the attempt of a lent task after its steps have been read. The caller leaves them, so that those of
// many lent tasks take no memory. If another process has lent the task, this one extends its lease.
func (p *Puller) withSteps(ctx context.Context, r Receipt) (*run.Attempt, error) {
	a := p.attempt(r)
	if a == nil || p.takesBack(r) {
		if err := p.Extend(ctx, Extension{Receipt: r})[0].Err; err != nil {
			return nil, err
		}
		if a = p.attempt(r); a == nil {
			return nil, ErrLeaseLost
		}
	}
	return a, a.ReadSteps(func() (*store.Detail, error) {
		t, err := p.leased(ctx, r)
		if err != nil {
			return nil, err
		}
		return t.Detail, nil
	})
}

// attempt returns the attempt of a task that this puller has lent or whose lease it extends, or nil.
func (p *Puller) attempt(r Receipt) *run.Attempt {
	p.mu.Lock()
	l := p.lent[r]
	p.mu.Unlock()
	if l != nil {
		return l.Attempt
	}
	return p.guests.attempt(r)
}

// takesBack reports whether a loan of this puller is being ended.
func (p *Puller) takesBack(r Receipt) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.lent[r]
	return l != nil && l.ending()
}
