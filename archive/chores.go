package archive

import (
	"context"
	"errors"
	"time"

	"github.com/tuskqueue/tusk/store"
)

const (
	choresEvery = time.Hour
	choresAgain = time.Minute // after a failure
)

// tend does the chores when they are due. It reports a failure in the status; nothing else stops
// because of it.
func (r *Runner) tend(ctx context.Context) error {
	err := r.chores(ctx)
	switch {
	case errors.Is(err, store.ErrConflict), errors.Is(err, ErrBusy): // another process is at work
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

// chores does what the archive needs besides new batches. It erases and restores tasks on request,
// prunes tasks that are past the archive's retention, merges small files, deletes lost ones and
// publishes the catalogue.
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
