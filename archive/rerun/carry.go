package rerun

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"gocloud.dev/gcerrors"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/archive"
	"github.com/tuskqueue/tusk/store"
)

// Carrier carries out reruns. If several try to do the same page, one succeeds and the others are
// refused.
type Carrier struct {
	Client  *tusk.Client
	Archive *archive.Archive
	Log     *slog.Logger

	theirs map[tusk.ID]time.Time // until when reruns are left to other processes
}

const (
	pageTasks = 500
	pageTime  = 2 * time.Second // a page ends after this time
	pause     = time.Second
	leaves    = 10 * time.Second // how long a rerun is left to a process that was faster
)

// One runs a task of the archive again. The error is archive.ErrNotFound if there is no such task.
func (c *Carrier) One(ctx context.Context, id tusk.ID, sees func(queue, tenant string) bool) (tusk.Enqueued, error) {
	old, err := c.Archive.Find(ctx, id)
	if err == nil && sees != nil && !sees(old.Queue, old.Tenant) {
		err = archive.ErrNotFound
	}
	if err != nil {
		return tusk.Enqueued{}, err
	}
	task, err := c.Client.Again(c.Client.Describe(old))
	if err != nil {
		return tusk.Enqueued{}, err
	}
	return c.Client.Enqueue(ctx, task.Args, task.Options)
}

// Count counts the tasks that a rerun would run again.
func (c *Carrier) Count(
	ctx context.Context, r Rerun, budget time.Duration, tell func(archive.Progress),
) (archive.Counted, error) {
	return c.Archive.Count(ctx, r.bounded(), budget, tell)
}

// Carry carries a rerun out until it has ended. tell is called with the progress; it may be nil.
// If ctx ends, the rerun stays, and another process can continue it.
func (c *Carrier) Carry(ctx context.Context, id tusk.ID, tell func(Rerun)) (Rerun, error) {
	for {
		r, err := find(ctx, c.Client.Store(), id)
		if err != nil {
			return r.Rerun, err
		}
		if tell != nil {
			tell(r.Rerun)
		}
		if r.Ended() {
			return r.Rerun, nil
		}
		switch err := c.page(ctx, &r); {
		case errors.Is(err, store.ErrConflict), errors.Is(err, errWait):
			if !wait(ctx, pause) {
				return r.Rerun, context.Cause(ctx)
			}
		case err != nil:
			return r.Rerun, err
		}
	}
}

// Run carries out all reruns until ctx ends.
func (c *Carrier) Run(ctx context.Context) {
	c.theirs = map[tusk.ID]time.Time{}
	for wait(ctx, pause) {
		if err := c.step(ctx); err != nil && ctx.Err() == nil {
			c.Log.Warn("rerun", "error", err)
		}
	}
}

// step does some pages of each rerun.
func (c *Carrier) step(ctx context.Context) error {
	reruns, err := all(ctx, c.Client.Store())
	if err != nil {
		return err
	}
	var failed error
	over := 0
	for i := range reruns {
		r := &reruns[i]
		switch {
		case r.Ended():
			if over++; over > keep {
				_, _, _ = c.Client.Store().PutRecord(ctx,
					store.PutRecord{Record: store.Record{Kind: archive.RerunKind, Name: r.ID.String(), Version: r.version}})
			}
		case time.Now().After(c.theirs[r.ID]):
			for end := time.Now().Add(pause); err == nil && !r.Ended() && time.Now().Before(end); {
				err = c.page(ctx, r)
			}
			if errors.Is(err, store.ErrConflict) {
				c.theirs[r.ID] = time.Now().Add(leaves)
				err = nil
			}
			if !errors.Is(err, errWait) {
				failed = errors.Join(failed, err)
			}
			err = nil
		}
	}
	return failed
}

var errWait = errors.New("the archive is being changed")

// page enqueues the next tasks and moves the cursor in the same transaction.
func (c *Carrier) page(ctx context.Context, r *stored) error {
	if r.CancelRequested {
		r.State = Cancelled
		return r.put(ctx, c.Client.Store())
	}
	changing, err := archive.Changing(ctx, c.Client.Store())
	if err != nil {
		return err
	}
	if changing {
		return errWait
	}
	found, err := c.Archive.Search(ctx, r.bounded(), r.Cursor, pageTasks, pageTime, nil)
	if errors.Is(err, archive.ErrMoved) && r.Cursor != "" {
		r.State = Failed
		r.
			Error = "the file that it had come to was written anew while nobody carried it on: begin another one with " +
			"what is left"
		return r.put(ctx, c.Client.Store())
	}
	if err != nil {
		return err
	}
	r.Cursor, r.Files, r.Of = found.Next, found.Files, found.Of
	if r.Cursor == "" {
		r.State = Done
	}
	var tasks []tusk.NewTask
	var ids []tusk.ID
	for _, old := range found.Tasks {
		task, err := c.Client.Again(c.Client.Describe(old))
		if err == nil {
			err = c.Client.Validate(task.Args, task.Options)
		}
		if err == nil {
			if gone, failed := c.gone(ctx, old); failed != nil {
				return failed
			} else if gone {
				err = errGone
			}
		}
		if err != nil {
			r.Refused++
			r.leave(old.ID, err.Error())
			continue
		}
		tasks, ids = append(tasks, task), append(ids, old.ID)
	}
	return c.enqueue(ctx, r, tasks, ids)
}

var errGone = errors.New("its args were kept outside the database, and are gone")

// gone reports whether a task has large args that are missing.
func (c *Carrier) gone(ctx context.Context, old store.Task) (bool, error) {
	info := c.Client.Describe(old)
	content, err := c.Client.ArgsOf(&info)
	if err != nil || !content.Large() {
		return false, err
	}
	r, err := content.OpenAt(ctx, 0)
	if gcerrors.Code(err) == gcerrors.NotFound {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return false, r.Close()
}

// enqueue stores the tasks of a page together with the record. Only then is it known which keys
// were taken, so these are written separately.
func (c *Carrier) enqueue(ctx context.Context, r *stored, tasks []tusk.NewTask, ids []tusk.ID) error {
	r.Enqueued += int64(len(tasks))
	if len(tasks) == 0 {
		return r.put(ctx, c.Client.Store())
	}
	record, err := r.record()
	if err != nil {
		return err
	}
	enqueued, err := c.Client.EnqueueWith(ctx, record, tasks)
	if err != nil {
		return err
	}
	now, err := find(ctx, c.Client.Store(), r.ID)
	if err != nil {
		return err
	}
	*r = now // another process may have changed it since
	taken := int64(0)
	for i, e := range enqueued {
		if e.Result == tusk.Skipped {
			taken++
			r.leave(ids[i], "an unfinished task has its key")
		}
	}
	if taken == 0 {
		return nil
	}
	r.KeyTaken, r.Enqueued = r.KeyTaken+taken, r.Enqueued-taken
	return r.put(ctx, c.Client.Store())
}

func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
