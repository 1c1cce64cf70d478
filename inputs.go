package tusk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/tuskqueue/tusk/store"
)

// How a task gets the outputs of the tasks that it needed.

// Limits of what is read at a time. An output in the database has at most MaxOutputBytes.
const (
	inputStep  = 16      // inputs of one read, where memory is limited
	inputBytes = 4 << 20 // outputs from which on a page ends; the last read may add as much again
	inputPage  = MaxPull // inputs of a page
	inputFew   = 4       // inputs of one read for FirstInputs
)

// Input is a task that another task needed: a parent in a workflow, or a child that it waited for.
type Input struct {
	ID     ID
	Name   string // in a workflow
	Kind   string
	State  State // 0 if it was deleted
	Output json.RawMessage
	// Content is the output wherever it is stored. If it is Large, only Task.Inputs also reads it into Output.
	Content Content `json:"-"`
}

// Inputs returns the tasks that this task needed, with their outputs, in the order in which they were added. All
// outputs, even large ones, are read into memory; EachInput reads them one at a time. The result is empty if the task
// needed nothing, for example before the first Wait.
func (t *Task[T]) Inputs(ctx context.Context) ([]Input, error) {
	var all []Input
	for input, err := range t.inputs(ctx, store.MaxPage) {
		if err != nil {
			return nil, err
		}
		if input.Output, err = input.Content.Bytes(ctx); err != nil {
			return nil, fmt.Errorf("inputs: output of task %s: %w", input.ID, err)
		}
		all = append(all, input)
	}
	return all, nil
}

// EachInput is like Inputs, with only a few inputs in memory at a time. It does not read large outputs: use their
// Content. An error ends the sequence.
func (t *Task[T]) EachInput(ctx context.Context) iter.Seq2[Input, error] {
	return t.inputs(ctx, inputStep)
}

func (t *Task[T]) inputs(ctx context.Context, step int) iter.Seq2[Input, error] {
	return func(yield func(Input, error) bool) {
		if t.attempt == nil {
			yield(Input{}, fmt.Errorf("inputs: %w", errMadeUp))
			return
		}
		self, err := t.client.needy(ctx, t.ID)
		if err != nil {
			yield(Input{}, fmt.Errorf("inputs: %w", err))
			return
		}
		for some := range slices.Chunk(self.Detail.Needs, step) {
			inputs, err := t.client.inputs(ctx, some)
			if err != nil {
				yield(Input{}, err)
				return
			}
			for _, input := range inputs {
				if !yield(input, nil) {
					return
				}
			}
		}
	}
}

// Inputs returns a page of the tasks that a lent task needed, in the order in which they were added, after the one
// with the given id; the zero ID means from the first one on. more reports whether there are further inputs. A page
// has at most 1,000 inputs and about 8 MiB of outputs. It has no large outputs: read their Content.
//
// Errors: ErrLeaseLost if the lease has ended; an *InvalidError if the task did not need after.
func (p *Puller) Inputs(ctx context.Context, r Receipt, after ID) (page []Input, more bool, err error) {
	needs, err := p.needs(ctx, r)
	if err != nil {
		return nil, false, err
	}
	if !after.IsZero() {
		at := slices.IndexFunc(needs, func(n store.NeedState) bool { return n.Task == after })
		if at < 0 {
			return nil, false, invalid("after", "no_input", "%s is no task that the leased task needed", after)
		}
		needs = needs[at+1:]
	}
	page, err = p.client.inputsUpTo(ctx, needs[:min(len(needs), inputPage)], inputStep, inputBytes)
	return page, len(page) < len(needs), err
}

// FirstInputs is like Inputs for the first page, with at most that many bytes of outputs: the page ends before the
// output that would exceed them, unless it is the first. No more than 1 MiB of outputs beyond the page is read.
//
// Errors: ErrLeaseLost if the lease has ended.
func (p *Puller) FirstInputs(ctx context.Context, r Receipt, bytes int) (page []Input, more bool, err error) {
	needs, err := p.needs(ctx, r)
	if err != nil {
		return nil, false, err
	}
	page, err = p.client.inputsUpTo(ctx, needs[:min(len(needs), inputPage)], inputFew, bytes+1)
	size := 0
	for i := range page {
		if size += len(page[i].Output); size > bytes && i > 0 {
			page = page[:i]
			break
		}
	}
	return page, len(page) < len(needs), err
}

// inputsUpTo reads needed tasks, a step at a time, until it has that many bytes of outputs.
func (c *Client) inputsUpTo(ctx context.Context, needs []store.NeedState, step, bytes int) (all []Input, err error) {
	size := 0
	for some := range slices.Chunk(needs, step) {
		inputs, err := c.inputs(ctx, some)
		if err != nil {
			return nil, err
		}
		for i := range inputs {
			size += len(inputs[i].Output)
		}
		if all = append(all, inputs...); size >= bytes {
			break
		}
	}
	return all, nil
}

// Input returns one of the tasks that a lent task needed.
//
// Errors: ErrLeaseLost if the lease has ended; ErrNotFound if the task did not need id.
func (p *Puller) Input(ctx context.Context, r Receipt, id ID) (Input, error) {
	needs, err := p.needs(ctx, r)
	if err != nil {
		return Input{}, err
	}
	at := slices.IndexFunc(needs, func(n store.NeedState) bool { return n.Task == id })
	if at < 0 {
		return Input{}, fmt.Errorf("input %s: %w", id, ErrNotFound)
	}
	inputs, err := p.client.inputs(ctx, needs[at:at+1])
	if err != nil {
		return Input{}, err
	}
	return inputs[0], nil
}

// needs returns what a lent task needed. Another process may have lent it.
func (p *Puller) needs(ctx context.Context, r Receipt) ([]store.NeedState, error) {
	self, err := p.client.needy(ctx, r.ID)
	if errors.Is(err, ErrNotFound) || err == nil && (self.State != store.Running || self.Lease != r.Lease) {
		return nil, ErrLeaseLost
	}
	if err != nil {
		return nil, fmt.Errorf("inputs: %w", err)
	}
	return self.Detail.Needs, nil
}

// needy reads a task with its needs.
func (c *Client) needy(ctx context.Context, id ID) (*TaskInfo, error) {
	tasks, err := c.List(ctx, Filter{IDs: []ID{id}, Detail: true, NoArgs: true})
	if err == nil && len(tasks) == 0 {
		err = fmt.Errorf("task %s: %w", id, ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	return &tasks[0], nil
}

// inputs reads needed tasks, at most store.MaxPage. It does not read large outputs.
func (c *Client) inputs(ctx context.Context, needs []store.NeedState) ([]Input, error) {
	inputs := make([]Input, len(needs))
	ids := make([]ID, len(needs))
	at := make(map[ID]int, len(needs))
	for i, n := range needs {
		inputs[i], ids[i], at[n.Task] = Input{ID: n.Task, State: n.State}, n.Task, i
	}
	tasks, err := c.List(ctx, Filter{IDs: ids, Detail: true, NoArgs: true, Limit: len(ids)})
	if err != nil {
		return nil, fmt.Errorf("inputs: %w", err)
	}
	for i := range tasks {
		t := &tasks[i]
		input := &inputs[at[t.ID]]
		input.Name, input.Kind, input.State, input.Content = t.Node, t.Kind, t.State, c.OutputOf(t)
		if !input.Content.Large() {
			input.Output = input.Content.text
		}
	}
	return inputs, nil
}
