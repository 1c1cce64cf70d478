package tusk

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/tuskqueue/tusk/store"
)

// QuietWorker has a living worker claim nothing more, within about a second: what it runs goes
// on, and it goes on beating. So it can be watched, or stopped once it is idle. It lasts until
// WakeWorker, or until the worker ends: one that is started anew is not quiet.
//
// Errors: ErrNotFound when no living worker has the id; ErrRefused for a server that lends tasks
// over HTTP, whose queues can be paused.
func (c *Client) QuietWorker(ctx context.Context, id ID) error {
	return c.setQuiet(ctx, id, func(quiet []ID) []ID { return append(quiet, id) })
}

// WakeWorker ends what QuietWorker began, within about a second. A worker that is not quiet is no
// error; the errors are the same.
func (c *Client) WakeWorker(ctx context.Context, id ID) error {
	return c.setQuiet(ctx, id, func(quiet []ID) []ID { return quiet })
}

// setQuiet changes who is quiet in the settings of a worker's queues, which all workers read.
// Ids of workers that have ended leave them on the way.
func (c *Client) setQuiet(ctx context.Context, id ID, change func(others []ID) []ID) error {
	living, err := c.Workers(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(living, func(w store.Worker) bool { return w.ID == id })
	switch {
	case i < 0:
		return fmt.Errorf("worker %s: %w: no living worker has this id", id, ErrNotFound)
	case len(living[i].Kinds) == 0:
		return fmt.Errorf("worker %s: %w: it lends tasks over HTTP: pause its queues instead", id, ErrRefused)
	}
	for _, queue := range living[i].Queues {
		err := c.setQueue(ctx, queue, func(s *queueSettings) {
			others := slices.DeleteFunc(s.Quiet, func(q ID) bool {
				return q == id || !slices.ContainsFunc(living, func(w store.Worker) bool { return w.ID == q })
			})
			s.Quiet = change(others)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// quietWorkers are those that QuietWorker has told to claim nothing more. Some may have ended since.
func (c *Client) quietWorkers(ctx context.Context) (map[ID]bool, error) {
	records, err := c.store.Records(ctx, queueRecord)
	if err != nil {
		return nil, fmt.Errorf("quiet workers: %w", err)
	}
	quiet := map[ID]bool{}
	for _, r := range records {
		var s queueSettings
		if err := json.Unmarshal(r.Body, &s); err != nil {
			return nil, fmt.Errorf("quiet workers: settings of %s: %w", r.Name, err)
		}
		for _, id := range s.Quiet {
			quiet[id] = true
		}
	}
	return quiet, nil
}
