package postgres

import (
	"context"
	"fmt"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// Edit implements store.Editor. The rules decide while everything that a change may touch is
// locked.
func (s *Store) Edit(ctx context.Context, e store.Edit) ([]store.Edited, error) {
	if len(e.IDs) == 0 {
		return nil, nil
	}
	e.Change.Reason = clean(e.Change.Reason)
	edited, held, err := s.edit(ctx, e)
	if err == nil {
		err = heldError(held)
	}
	if err != nil {
		err = fmt.Errorf("edit: %w", err)
	}
	return edited, err
}

// edit changes tasks in one transaction. If that waits too long for a lock, edit changes the
// halves one after the other. A single task is returned as held.
func (s *Store) edit(ctx context.Context, e store.Edit) (edited []store.Edited, held []store.ID, err error) {
	edited, err = s.editOnce(ctx, e)
	switch {
	case !isBusy(err) || ctx.Err() != nil:
		return edited, nil, err
	case len(e.IDs) == 1:
		return []store.Edited{{ID: e.IDs[0], Result: store.Refused}}, e.IDs, nil
	}
	half := len(e.IDs) / 2
	first, held, err := s.edit(ctx, store.Edit{IDs: e.IDs[:half], Change: e.Change})
	if err != nil {
		return nil, nil, err
	}
	rest, more, err := s.edit(ctx, store.Edit{IDs: e.IDs[half:], Change: e.Change})
	if err != nil {
		return nil, nil, err
	}
	return append(first, rest...), append(held, more...), nil
}

func (s *Store) editOnce(ctx context.Context, e store.Edit) (edited []store.Edited, err error) {
	var to *int64
	if e.Change.Op == store.Move {
		lane := laneOf(e.Change.Queue, 0)
		to = &lane
	}
	left, err := s.decide(ctx, e.IDs, func(b *rules.Batch) error {
		edited, err = b.Edit(e.IDs, &e.Change)
		return err
	}, "lock_tasks", uuidsOf(e.IDs), int16(e.Change.Op), to)
	if err != nil {
		return nil, err
	}
	for i := range edited {
		if left[edited[i].ID] {
			edited[i].State = store.Scheduled
		}
	}
	return edited, nil
}
