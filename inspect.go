package tusk

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Filter chooses tasks. Zero fields choose all; set fields must all match. Package store
// has its fields.
type Filter = store.Filter

// Get returns a task with its attempts, output, progress and logs. The error is
// ErrNotFound when there is none.
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

// List returns the tasks that match, newest first, a page at a time: 100 of them, or
// Limit, which is at most 1,000. The next page is asked for with Before set to the last
// id of this one.
//
// The error is an *InvalidError when the filter asks for more.
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

// Search is List for people who wait: it looks at the newest budget tasks, or so,
// and no further, however few of them match. more is where to go on, as Before of
// the next search; zero: there are no others. Engines that find what matches by an
// index may look at all.
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

// infos reads what tasks say. What cannot be read of a task's settings must not hide
// the task.
func (c *Client) infos(tasks []store.Task) []TaskInfo {
	infos := make([]TaskInfo, len(tasks))
	for i := range tasks {
		if err := infos[i].read(&tasks[i]); err != nil {
			c.config.Logger.Warn("list", "task", tasks[i].ID, "error", err)
		}
	}
	return infos
}

// Describe reads what the settings of a task say that came from elsewhere, such as an archive.
func (c *Client) Describe(t store.Task) TaskInfo { return c.infos([]store.Task{t})[0] }

// Stats returns what attempts came to, by queue, kind and slice of time, oldest slice
// first. The error is an *InvalidError when Bucket is no minute, hour or day.
func (c *Client) Stats(ctx context.Context, f store.StatsFilter) ([]store.Stat, error) {
	switch f.Bucket {
	case time.Minute, time.Hour, 24 * time.Hour:
	default:
		return nil, invalid("bucket", "out_of_range", "is %v, want a minute, an hour or a day", f.Bucket)
	}
	return c.store.Stats(ctx, f)
}

// Errors returns groups of like errors of failed attempts, latest first: 100 of them, or
// Limit.
func (c *Client) Errors(ctx context.Context, f store.ErrorFilter) ([]store.ErrorGroup, error) {
	return c.store.Errors(ctx, f)
}

// Workers returns the living workers, oldest first, and says which were told to claim nothing more.
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

// Edited says what an edit did to one task.
type Edited = store.Edited

// Change is one thing to do to tasks; see package store.
type Change = store.Change

// The verbs of a change; store.Change says which states allow each.
const (
	OpCancel       = store.Cancel       // call it off, for Reason
	OpRetry        = store.Retry        // make it available again, or at RunAt or after Delay
	OpDelete       = store.Delete       // remove it with its history
	OpReprioritize = store.Reprioritize // give it another Priority
	OpMove         = store.Move         // put it into another Queue
	OpReschedule   = store.Reschedule   // have it run at RunAt or after Delay
)

// Edit applies a change to up to 1,000 tasks (store.MaxPage) and says of each, in the
// same order, what became of it: that some are gone, or may not be changed, is no error.
//
// The error is an *InvalidError for what was passed in; after another one, some tasks
// may have been changed.
func (c *Client) Edit(ctx context.Context, ids []ID, change Change) ([]Edited, error) {
	if len(ids) > store.MaxPage {
		return nil, invalid("ids", "batch_too_large", "has %d ids, at most %d are allowed in one call", len(ids),
			store.MaxPage)
	}
	if err := validateChange(change); err != nil {
		return nil, err
	}
	change.RunAt = ceilMillisecond(change.RunAt)
	edited, err := c.store.Edit(ctx, store.Edit{IDs: ids, Change: change})
	if err != nil {
		return nil, fmt.Errorf("%v: %w", change.Op, err)
	}
	return edited, nil
}

// Cancel calls a task off. One that runs is told within a heartbeat, which
// running reports; whether it ends cancelled is then up to its handler.
//
// Errors: ErrNotFound; ErrRefused when it has finished.
func (c *Client) Cancel(ctx context.Context, id ID, reason string) (running bool, err error) {
	edited, err := c.editOne(ctx, id, Change{Op: store.Cancel, Reason: reason})
	return edited.Result == store.Requested, err
}

// Retry makes a task available again: a failed one before its time, a finished
// one anew, with no attempts counted.
//
// Errors: ErrNotFound; ErrRefused when it is available or runs, or when another
// unfinished task has its key.
func (c *Client) Retry(ctx context.Context, id ID) error {
	_, err := c.editOne(ctx, id, Change{Op: store.Retry})
	return err
}

// Delete removes a task and its history.
//
// Errors: ErrNotFound; ErrRefused while it runs.
func (c *Client) Delete(ctx context.Context, id ID) error {
	_, err := c.editOne(ctx, id, Change{Op: store.Delete})
	return err
}

// Reprioritize changes the priority of a task that has not started.
//
// Errors: ErrNotFound; ErrRefused when it runs, has finished, or waits for other tasks.
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
