package tusk

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/tuskqueue/tusk/internal/allot"
	"github.com/tuskqueue/tusk/internal/tend"
	"github.com/tuskqueue/tusk/store"
)

// KnowsQueue reports whether a queue is known: whether it has or had a task, or has a setting, a limit, a
// schedule, or a live worker that takes its tasks. Call it before a change to detect misspelled names.
func (c *Client) KnowsQueue(ctx context.Context, name string) (bool, error) {
	if err := ValidateName("queue", name); err != nil {
		return false, err
	}
	names, err := c.QueueNames(ctx)
	if err != nil || slices.Contains(names, name) {
		return err == nil, err
	}
	tasks, err := c.List(ctx, Filter{Queues: []string{name}, Limit: 1})
	return len(tasks) > 0, err
}

// QueueNames lists the names that are known without reading finished tasks, for completing or correcting a name.
func (c *Client) QueueNames(ctx context.Context) ([]string, error) {
	queues, err := c.Queues(ctx)
	if err != nil {
		return nil, err
	}
	schedules, err := c.Schedules(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, q := range queues {
		names = append(names, q.Name)
	}
	for _, s := range schedules {
		names = append(names, s.Queue)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// QueueInUseError says why a queue cannot be removed. It matches ErrRefused.
type QueueInUseError struct {
	Queue    string
	Tasks    int64  // number of unfinished tasks
	Workers  int    // number of workers that take its tasks
	Schedule string // name of a schedule that enqueues into it
}

func (e *QueueInUseError) Error() string {
	switch {
	case e.Tasks > 0:
		return fmt.Sprintf("queue %s: unfinished tasks: %d: cancel, move or finish them first", e.Queue, e.Tasks)
	case e.Schedule != "":
		return fmt.Sprintf("queue %s: the schedule %s enqueues into it: remove that or change its queue first",
			e.Queue, e.Schedule)
	default:
		return fmt.Sprintf("queue %s: workers that take its tasks: %d: stop them first", e.Queue, e.Workers)
	}
}

// Is makes errors.Is(err, ErrRefused) true.
func (e *QueueInUseError) Is(target error) bool { return target == ErrRefused }

// RemoveQueue removes a queue from the lists and deletes its settings: pause, aging, limits and retention.
// Finished tasks stay until their retention expires. The next task enqueued into the queue brings it back.
//
// Errors: ErrNotFound if the queue is not known; a *QueueInUseError if it has unfinished tasks, a schedule or a
// worker.
func (c *Client) RemoveQueue(ctx context.Context, name string) error {
	known, err := c.KnowsQueue(ctx, name)
	switch {
	case err != nil:
		return err
	case !known:
		return fmt.Errorf("queue %s: %w", name, ErrNotFound)
	}
	if err := c.queueInUse(ctx, name); err != nil {
		return err
	}
	gone := func([]byte) ([]byte, error) { return nil, nil }
	for _, kind := range []string{queueRecord, allot.RecordKind} {
		if err := c.changeRecord(ctx, kind, name, gone); err != nil {
			return fmt.Errorf("queue %s: %w", name, err)
		}
	}
	c.limits.forget()
	err = c.changeRecord(ctx, tend.NameKind, name, func([]byte) ([]byte, error) {
		return json.Marshal(tend.Name{Removed: true})
	})
	if err != nil {
		return fmt.Errorf("queue %s: %w", name, err)
	}
	return nil
}

func (c *Client) queueInUse(ctx context.Context, name string) error {
	use := QueueInUseError{Queue: name}
	counts, err := c.store.Count(ctx)
	if err != nil {
		return fmt.Errorf("queue %s: %w", name, err)
	}
	for _, n := range counts {
		if n.Queue == name {
			use.Tasks += n.Tasks
		}
	}
	schedules, err := c.Schedules(ctx)
	if err != nil {
		return err
	}
	for _, s := range schedules {
		if s.Queue == name {
			use.Schedule = s.Name
		}
	}
	workers, err := c.store.Workers(ctx)
	if err != nil {
		return fmt.Errorf("queue %s: %w", name, err)
	}
	for _, w := range workers {
		if slices.Contains(w.Queues, name) {
			use.Workers++
		}
	}
	if use == (QueueInUseError{Queue: name}) {
		return nil
	}
	return &use
}

// namedQueues lists the queues that have had a task and have not been removed since.
func (c *Client) namedQueues(ctx context.Context) ([]string, error) {
	records, err := c.store.Records(ctx, store.RecordFilter{Kind: tend.NameKind})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, r := range records {
		var n tend.Name
		if err := json.Unmarshal(r.Body, &n); err == nil && !n.Removed {
			names = append(names, r.Name)
		}
	}
	return names, nil
}
