package mysql

import (
	"context"
	"errors"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// maxEdited is the maximum number of tasks that one transaction changes.
const maxEdited = 1000

// Edit implements store.Editor. It changes at most maxEdited tasks per transaction, so that it does not delay claims
// for long. A task that an open transaction holds is refused.
func (s *Store) Edit(ctx context.Context, e store.Edit) ([]store.Edited, error) {
	edited := make([]store.Edited, 0, len(e.IDs))
	var busy []store.ID
	err := inParts(e.IDs, maxEdited, func(part []store.ID) error {
		held, err := apartIfHeld(part, func(ids []store.ID) error {
			var some []store.Edited
			err := s.hurry(ctx, triesFor(ids), func(w *work) (err error) {
				some, err = w.edit(ids, &e.Change)
				return err
			})
			switch {
			case err == nil:
				edited = append(edited, some...)
			case held(err) && len(ids) == 1:
				edited = append(edited, store.Edited{ID: ids[0], Result: store.Refused})
			}
			return err
		})
		busy = append(busy, held...)
		return err
	})
	if err != nil && len(edited) == len(busy) { // nothing was changed
		return nil, wrap("edit", err)
	}
	for _, id := range e.IDs[len(edited):] { // those from a part that failed onwards
		edited, busy = append(edited, store.Edited{ID: id, Result: store.Refused}), append(busy, id)
	}
	return edited, wrap("edit", errors.Join(causeOf(err), heldError(busy)))
}

// causeOf returns the cause of an error that says that nothing was stored, which is not true of the whole call.
func causeOf(err error) error {
	if both, is := err.(interface{ Unwrap() []error }); is && errors.Is(err, store.ErrNotCommitted) {
		return both.Unwrap()[1]
	}
	return err
}

// apartIfHeld calls do with items. If another transaction holds one of them, or changes one at the same time, it
// handles each half separately. It returns the items that are held.
func apartIfHeld[T any](items []T, do func(part []T) error) (busy []T, err error) {
	err = do(items)
	switch {
	case !held(err) && !errors.Is(err, errAgain):
		return nil, err
	case len(items) > 1:
		half := len(items) / 2
		if busy, err = apartIfHeld(items[:half], do); err != nil {
			return busy, err
		}
		more, err := apartIfHeld(items[half:], do)
		return append(busy, more...), err
	case held(err):
		return items, nil
	}
	return nil, err
}

// triesFor returns how often to try for a lock; with several items, halves are tried next.
func triesFor[T any](items []T) int {
	if len(items) > 1 {
		return fewTries
	}
	return hastyTries
}

// edit changes tasks, after it has locked their keys and the tasks themselves.
func (w *work) edit(ids []store.ID, c *store.Change) (edited []store.Edited, err error) {
	if c.Op == store.Retry {
		if w.dropping, err = w.going(q("days.check")); err != nil {
			return nil, err
		}
	}
	var keys []rules.KeyName
	err = w.locate(idArgs(ids), func(r ref, id store.ID, _ store.State, key rules.KeyName) {
		w.isAt(id, r)
		keys = append(keys, key)
		if c.Op == store.Move && key.Queue != c.Queue {
			keys = append(keys, rules.KeyName{Queue: c.Queue, Tenant: key.Tenant, Key: key.Key})
		}
	})
	if err != nil {
		return nil, err
	}
	if err := w.lockKeys(sortedKeys(keys)); err != nil {
		return nil, err
	}
	w.beExact(ids...)
	return edited, w.decide(func(b *rules.Batch) error {
		edited, err = b.Edit(ids, c)
		return err
	})
}
