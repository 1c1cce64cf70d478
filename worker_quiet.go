package tusk

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/tuskqueue/tusk/store"
)

// QuietWorker makes a live worker stop claiming, within about a second. Its running tasks continue, and so do its
// heartbeats, so it can be watched, or stopped once it is idle. The setting lasts until WakeWorker, or until the
// worker ends: a restarted worker is not quiet.
//
// Errors: ErrNotFound if no live worker has the id; ErrRefused for a server that lends tasks over HTTP; pause its
// queues instead.
func (c *Client) QuietWorker(ctx context.Context, id ID) error {
	return c.setQuiet(ctx, id, func(quiet []ID) []ID { return append(quiet, id) })
}

// WakeWorker undoes QuietWorker, within about a second. Waking a worker that is not quiet is not an error. The
// errors are the same as those of QuietWorker.
func (c *Client) WakeWorker(ctx context.Context, id ID) error {
	return c.setQuiet(ctx, id, func(quiet []ID) []ID { return quiet })
}

// setQuiet changes the list of quiet workers in the settings of a worker's queues, which all workers read. It also
// removes the ids of workers that have ended.
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

// quietWorkers returns the workers that QuietWorker told to stop claiming. Some may have ended since.
func (c *Client) quietWorkers(ctx context.Context) (map[ID]bool, error) {
	records, err := c.store.Records(ctx, store.RecordFilter{Kind: queueRecord})
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
