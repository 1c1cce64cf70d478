package tusk

import (
	"context"
	"fmt"
	"slices"
)

// KnowsQueue reports whether there is anything of a queue: a task, a setting, a limit, a
// schedule, or a living worker that takes its tasks. Whoever asks before a change finds
// misspelt names.
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

// QueueNames lists the names that are known without looking at finished tasks, for
// whoever completes or corrects one.
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

// RemoveQueue forgets the settings of a queue: its pause, its aging, how long it keeps
// its tasks. A queue is listed for as long as it has unfinished tasks. The error is
// ErrNotFound when it has no settings.
func (c *Client) RemoveQueue(ctx context.Context, name string) error {
	err := c.changeRecord(ctx, queueRecord, name, func(body []byte) ([]byte, error) {
		if len(body) == 0 {
			return nil, ErrNotFound
		}
		return nil, nil
	})
	if err != nil {
		return fmt.Errorf("queue %s: %w", name, err)
	}
	return nil
}
