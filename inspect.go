package tusk

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Filter selects tasks. A zero field matches all tasks; a task must match all fields that are set. See package
// store for the fields.
type Filter = store.Filter

// Get returns a task; its attempts, output, progress and logs are in its Detail. The error is ErrNotFound if there is
// no such task.
func (c *Client) Get(ctx context.Context, id ID) (*TaskInfo, error) {
	tasks, err := c.List(ctx, Filter{IDs: []ID{id}, Detail: true})
	if err != nil {
		return nil, err
	}
	if len(tasks) == 0 {
		return nil, fmt.Errorf("task %s: %w", id, ErrNotFound)
	}
	return &tasks[0], nil
}

// List returns a page of the tasks that match, newest first. Limit is the size of a page, at most 1,000; default:
// 100. For the next page, set Before to the last id of this one.
//
// The error is an *InvalidError if the filter exceeds these limits.
func (c *Client) List(ctx context.Context, f Filter) ([]TaskInfo, error) {
	if f.Limit < 0 || f.Limit > store.MaxPage || len(f.IDs) > store.MaxPage {
		return nil, invalid("limit", "out_of_range", "is %d, want 1 to %d", max(f.Limit, len(f.IDs)), store.MaxPage)
	}
	tasks, err := c.store.List(ctx, f)
	if err != nil {
		return nil, err
	}
	return c.infos(tasks), nil
}

// Search is like List for interactive use: it reads about budget tasks, newest first, and then stops, however few of
// them match. more is the Before of the next search; zero means that there are no more tasks. Engines that find
// matches by an index may search all tasks.
func (c *Client) Search(ctx context.Context, f Filter, budget int) (page []TaskInfo, more ID, err error) {
	s, ok := store.As[store.Searcher](c.store)
	if !ok {
		setDefault(&f.Limit, 100)
		page, err = c.List(ctx, f)
		if err == nil && len(page) == f.Limit {
			more = page[len(page)-1].ID
		}
		return page, more, err
	}
	if f.Limit < 0 || f.Limit > store.MaxPage || len(f.IDs) > store.MaxPage {
		return nil, more, invalid("limit", "out_of_range", "is %d, want 1 to %d", max(f.Limit, len(f.IDs)),
			store.MaxPage)
	}
	tasks, more, err := s.Search(ctx, f, budget)
	if err != nil {
		return nil, more, err
	}
	return c.infos(tasks), more, nil
}

// infos decodes the settings of tasks. A task whose settings cannot be decoded is still returned.
func (c *Client) infos(tasks []store.Task) []TaskInfo {
	infos := make([]TaskInfo, len(tasks))
	for i := range tasks {
		if err := infos[i].read(&tasks[i]); err != nil {
			c.config.Logger.Warn("list", "task", tasks[i].ID, "error", err)
		}
	}
	return infos
}

// Describe decodes the settings of a task from another source, such as an archive.
func (c *Client) Describe(t store.Task) TaskInfo { return c.infos([]store.Task{t})[0] }

// Stats returns the outcomes of attempts by queue, kind and time bucket, oldest bucket first. The error is an
// *InvalidError if Bucket is not a minute, an hour or a day.
func (c *Client) Stats(ctx context.Context, f store.StatsFilter) ([]store.Stat, error) {
	switch f.Bucket {
	case time.Minute, time.Hour, 24 * time.Hour:
	default:
		return nil, invalid("bucket", "out_of_range", "is %v, want a minute, an hour or a day", f.Bucket)
	}
	return c.store.Stats(ctx, f)
}

// Errors returns groups of similar errors of failed attempts, latest first. f.Limit is the maximum number of
// groups; default: 100.
func (c *Client) Errors(ctx context.Context, f store.ErrorFilter) ([]store.ErrorGroup, error) {
	return c.store.Errors(ctx, f)
}

// Workers returns the live workers, oldest first, and marks those that were told to stop claiming.
func (c *Client) Workers(ctx context.Context) ([]store.Worker, error) {
	workers, err := c.store.Workers(ctx)
	if err != nil {
		return nil, err
	}
	quiet, err := c.quietWorkers(ctx)
	for i := range workers {
		workers[i].Quiet = quiet[workers[i].ID]
	}
	return workers, err
}

// Edited is the result of an edit for one task.
type Edited = store.Edited

// Change is an edit of tasks; see package store.
type Change = store.Change

// The operations of a change; see store.Change for the states that allow each.
const (
	OpCancel       = store.Cancel       // cancel it, for Reason
	OpRetry        = store.Retry        // make it available again, now, at RunAt or after Delay
	OpDelete       = store.Delete       // remove it with its history
	OpReprioritize = store.Reprioritize // change its priority to Priority
	OpMove         = store.Move         // move it to Queue
	OpReschedule   = store.Reschedule   // run it at RunAt or after Delay
)

// Edit applies a change to up to 1,000 tasks (store.MaxPage) and returns the result for each, in the same order. A
// task that is gone or cannot be changed is not an error.
//
// The error is an *InvalidError if the input is invalid. After any other error, some tasks may have been changed.
func (c *Client) Edit(ctx context.Context, ids []ID, change Change) ([]Edited, error) {
	if len(ids) > store.MaxPage {
		return nil, invalid("ids", "batch_too_large", "has %d ids, at most %d are allowed in one call", len(ids),
			store.MaxPage)
	}
	if err := validateChange(change); err != nil {
		return nil, err
	}
	change.RunAt = ceilMillisecond(change.RunAt)
	edited, err := c.edit(ctx, store.Edit{IDs: ids, Change: change})
	if err != nil {
		return nil, fmt.Errorf("%v: %w", change.Op, err)
	}
	return edited, nil
}

// Cancel cancels a task. running reports whether the task is running; its handler is then told within a heartbeat
// and decides whether the task ends as cancelled.
//
// Errors: ErrNotFound; ErrRefused if the task has finished.
func (c *Client) Cancel(ctx context.Context, id ID, reason string) (running bool, err error) {
	edited, err := c.editOne(ctx, id, Change{Op: store.Cancel, Reason: reason})
	return edited.Result == store.Requested, err
}

// Retry makes a task available again: a failed task before its time, a finished task from the start, with no
// attempts counted.
//
// Errors: ErrNotFound; ErrRefused if the task is available or running, or if another unfinished task has its key.
func (c *Client) Retry(ctx context.Context, id ID) error {
	_, err := c.editOne(ctx, id, Change{Op: store.Retry})
	return err
}

// Delete removes a task and its history.
//
// Errors: ErrNotFound; ErrRefused while the task is running.
func (c *Client) Delete(ctx context.Context, id ID) error {
	_, err := c.editOne(ctx, id, Change{Op: store.Delete})
	return err
}

// Reprioritize changes the priority of a task that has not started.
//
// Errors: ErrNotFound; ErrRefused if the task is running, has finished, or waits for other tasks.
func (c *Client) Reprioritize(ctx context.Context, id ID, priority int16) error {
	_, err := c.editOne(ctx, id, Change{Op: store.Reprioritize, Priority: priority})
	return err
}

func (c *Client) editOne(ctx context.Context, id ID, change Change) (Edited, error) {
	edited, err := c.Edit(ctx, []ID{id}, change)
	if err != nil {
		return Edited{}, err
	}
	switch e := edited[0]; e.Result {
	case store.Missing:
		return e, fmt.Errorf("task %s: %w", id, ErrNotFound)
	case store.Refused:
		return e, fmt.Errorf("%v task %s: %w: it is %v", change.Op, id, ErrRefused, e.State)
	case store.KeyTaken:
		return e, fmt.Errorf("%v task %s: %w: another unfinished task has its key", change.Op, id, ErrRefused)
	default:
		return e, nil
	}
}

func compareText(a, b string) int { return strings.Compare(a, b) }
