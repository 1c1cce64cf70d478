package tusk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tuskqueue/tusk/internal/run"
	"github.com/tuskqueue/tusk/store"
)

// Limits on the steps of a task.
const (
	MaxSteps     = run.MaxSteps     // steps with a result
	MaxStepBytes = run.MaxStepBytes // all names, and all results as JSON
)

// Step runs do once for the task, not once for each attempt. It stores the result in the database before it returns.
// When a later attempt calls Step with the same name, it gets the stored result, and do does not run again: so a
// handler that is retried, rescued after a crash, snoozed or woken after its children continues with the first step
// that has no result.
//
// If do fails, Step returns its error and stores nothing. If the process dies while do runs, or before the result is
// stored, do runs again: its effects outside the database happen at least once, as those of a handler. Pass
// t.IdempotencyKey() and the name of the step to services that recognize repeated requests.
//
// A handler may change between two attempts. Steps are found by name, not by order: the code around them need not be
// deterministic, new steps can be added anywhere, and a step that no longer exists is ignored. Give a step another name
// if the type of its result changes. Within an attempt a name is used once; in a loop, add the index or the id of the
// item. Steps may run concurrently. A task that has completed and runs again begins with its first step.
//
// The result is encoded as JSON and is not encrypted. What JSON leaves out is missing in later attempts. The log of the
// task shows it. Step needs one read of the database in each attempt, and one write for each result, which the steps of
// all tasks of the worker share.
//
// Errors: an *InvalidError if the name is no name (see ValidateName), is used twice in an attempt, or follows
// CompleteTx; if the result cannot be encoded; or if the steps exceed MaxSteps or MaxStepBytes. The cause of the end of
// the context or of the attempt, if one ends before the result is stored. Step waits while the database is away.
func Step[R, T any](
	ctx context.Context, t *Task[T], name string, do func(ctx context.Context) (R, error),
) (result R, err error) {
	if t.attempt == nil {
		return result, fmt.Errorf("step %s: %w", name, errMadeUp)
	}
	if err := ValidateName("step", name); err != nil {
		return result, err
	}
	if err := t.client.awaitSteps(ctx, t.attempt); err != nil {
		return result, fmt.Errorf("step %s: %w", name, err)
	}
	text, stored, err := t.attempt.BeginStep(name)
	if err != nil {
		return result, stepProblem(name, err)
	}
	kept := false
	defer func() { // also if do panics
		if !kept {
			t.attempt.FailStep(name)
		}
	}()
	if text != nil {
		if err := json.Unmarshal(text, &result); err != nil {
			return result, fmt.Errorf("step %s: the stored result is not of type %T: %w", name, result, err)
		}
	} else {
		if err := ended(ctx, t.attempt.Context()); err != nil {
			return result, fmt.Errorf("step %s: %w", name, err)
		}
		if result, err = do(ctx); err != nil {
			return result, err
		}
		if text, err = encodeStep(name, result); err != nil {
			return result, err
		}
		if _, stored, err = t.attempt.EndStep(name, text); err != nil {
			return result, stepProblem(name, err)
		}
	}
	for ended(ctx, t.attempt.Context()) == nil {
		select {
		case <-stored:
			kept = true
			return result, nil
		case <-ctx.Done():
		case <-t.attempt.Context().Done():
		case <-time.After(stepLook):
			if t.attempt.InTx() {
				return result, stepProblem(name, run.ErrStepInTx)
			}
		}
	}
	return result, fmt.Errorf("step %s: its result may not be stored: %w", name, ended(ctx, t.attempt.Context()))
}

// stepLook is how often a step that waits looks whether it waits in vain.
const stepLook = time.Second

// ended returns why one of the contexts has ended, or nil.
func ended(all ...context.Context) error {
	for _, ctx := range all {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// awaitSteps reads the results that earlier attempts have stored, once the database answers.
func (c *Client) awaitSteps(ctx context.Context, a *run.Attempt) error {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := a.ReadSteps(func() (*store.Detail, error) {
			t, err := c.detailed(ctx, a.Task.ID)
			if err != nil {
				return nil, err
			}
			return t.Detail, nil
		})
		if !errors.Is(err, store.ErrUnavailable) {
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return err
		case <-a.Context().Done():
			return err
		}
	}
}

// detailed reads the details of a task that is running, or was. Its log is complete.
func (c *Client) detailed(ctx context.Context, id ID) (*store.Task, error) {
	tasks, err := c.store.List(ctx, store.Filter{IDs: []ID{id}, Detail: true, NoArgs: true, Limit: 1})
	if err == nil && len(tasks) == 0 {
		err = ErrLeaseLost
	}
	if err != nil {
		return nil, err
	}
	return &tasks[0], nil
}

func encodeStep(name string, result any) ([]byte, error) {
	text, err := json.Marshal(result)
	if err != nil {
		return nil, invalid("step", "invalid_json", "%s: a result of type %T cannot be encoded: %v", name, result, err)
	}
	if err := checkJSON(text); err != nil {
		return nil, fmt.Errorf("step %s: %w", name, err)
	}
	return text, nil
}

func stepProblem(name string, err error) error {
	switch {
	case errors.Is(err, run.ErrStepTwice):
		return invalid("step", "duplicate", "%s is used for the second time in this attempt: "+
			"give each step its own name, in a loop with an index", name)
	case errors.Is(err, run.ErrStepInTx):
		return invalid("step", "too_late", "%s follows CompleteTx, after which nothing can be added to the task", name)
	}
	return invalid("step", "too_large", "%s would exceed the limits of a task: %d steps, and %d bytes of names and "+
		"results: store large results elsewhere and return a reference, or leave some of the work to child tasks", name,
		MaxSteps, MaxStepBytes)
}
