package archive

import (
	"context"
	"errors"
	"time"

	"github.com/tuskqueue/tusk/store"
)

const (
	choresEvery = time.Hour
	choresAgain = time.Minute // after they failed
)

// tend does the chores when they are due. Their failure is told, and stops nothing else.
func (r *Runner) tend(ctx context.Context) error {
	err := r.chores(ctx)
	switch {
	case errors.Is(err, store.ErrConflict), errors.Is(err, ErrBusy): // somebody else is at work
		return nil
	case err != nil:
		r.due, r.failed = time.Now().Add(choresAgain), true
		return errors.Join(err, r.tell(ctx, func(s *Status) { s.Failing = err.Error() }))
	case r.failed:
		r.failed = false
		return r.tell(ctx, func(s *Status) { s.Failing = "" })
	}
	return nil
}

// chores are what the archive needs besides new batches: tasks erased that somebody asked to be,
// or put back into the database, tasks pruned that are past its retention, small files merged, lost ones swept, and the
// catalogue published.
func (r *Runner) chores(ctx context.Context) error {
	if err := r.eraseAll(ctx); err != nil {
		return err
	}
	if err := r.restoreAll(ctx); err != nil {
		return err
	}
	asked, err := pruneAsked(ctx, r.o.Store)
	if err != nil || !asked && time.Now().Before(r.due) {
		return err
	}
	if _, err := r.prune(ctx, nil); err != nil {
		return err
	}
	if more, err := r.merge(ctx); err != nil || more {
		return err
	}
	if err := r.tidy(ctx); err != nil {
		return err
	}
	r.due = time.Now().Add(choresEvery)
	return nil
}
