package archive

import (
	"context"
	"errors"
	"time"

	"github.com/tuskqueue/tusk/store"
)

const (
	choresEvery = time.Hour
	choresAgain = time.Minute // after a failure; the pause doubles up to choresEvery
)

// tend does the chores when they are due. It reports a failure in the status until all of them have
// succeeded; nothing else stops because of it.
func (r *Runner) tend(ctx context.Context) error {
	before := r.failed
	err := r.chores(ctx)
	switch {
	case atWork(err):
		return nil
	case err != nil:
		r.pause = min(max(2*r.pause, choresAgain), choresEvery)
		r.again = time.Now().Add(r.pause)
		r.due, r.failed = r.again, err.Error()
		return errors.Join(err, r.succeeded(ctx))
	case r.failed != before:
		return r.succeeded(ctx)
	}
	return nil
}

// succeeded reports that archiving can continue, and why the chores cannot, if they have failed.
func (r *Runner) succeeded(ctx context.Context) error {
	return r.tell(ctx, func(s *Status) { s.Failing = r.failed })
}

// atWork reports whether another process works on the archive.
func atWork(err error) bool { return errors.Is(err, store.ErrConflict) || errors.Is(err, ErrBusy) }

// chores does what the archive needs besides new batches. It erases and restores tasks on request,
// prunes tasks that are past the archive's retention, merges small files, deletes lost ones and
// publishes the catalogue. A chore that fails does not delay the others. Failed chores are retried
// after a pause.
func (r *Runner) chores(ctx context.Context) error {
	again := !time.Now().Before(r.again)
	var failed error
	goOn := func(err error) bool {
		over := atWork(err) || ctx.Err() != nil
		if !over || failed == nil {
			failed = errors.Join(failed, err)
		}
		return !over
	}
	if !goOn(r.eraseAll(ctx, again)) || !goOn(r.restoreAll(ctx, again)) {
		return failed
	}
	asked, err := pruneAsked(ctx, r.o.Store)
	asked = asked && !r.unpruned
	if err != nil || !asked && (!again || time.Now().Before(r.due)) {
		return errors.Join(failed, err)
	}
	_, err = r.prune(ctx, nil)
	if r.unpruned = err != nil && !atWork(err); !goOn(err) {
		return failed
	}
	for more := true; more; { // usually one step at a time, but what has failed would delay the next one
		more, err = r.merge(ctx)
		if !goOn(err) || more && failed == nil && again {
			return failed
		}
	}
	if !goOn(r.tidy(ctx)) || failed != nil || !again {
		return failed
	}
	r.due, r.pause, r.failed = time.Now().Add(choresEvery), 0, ""
	return nil
}
