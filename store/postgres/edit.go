package postgres

import (
	"context"
	"fmt"

	"github.com/tuskqueue/tusk/store"
)

// Edit implements store.Editor. Each task is edited under the lock of the place
// that holds it; the function edit tells how.
func (s *Store) Edit(ctx context.Context, e store.Edit) ([]store.Edited, error) {
	edited, held, err := s.edit(ctx, e)
	if err == nil {
		err = heldError(held)
	}
	if err != nil {
		err = fmt.Errorf("edit: %w", err)
	}
	return edited, err
}

// edit changes tasks in one call of the function edit. When that has waited too long for
// a lock, halves are changed one after the other; one task alone is held.
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

func (s *Store) editOnce(ctx context.Context, e store.Edit) ([]store.Edited, error) {
	edited := make([]store.Edited, len(e.IDs))
	for i, id := range e.IDs {
		edited[i].ID = id
	}
	c := e.Change
	err := s.query(ctx, "edit", func(raw [][]byte) error {
		done := &edited[int32Of(raw[0])-1]
		done.Result, done.State = store.EditResult(stateOf(raw[1])), stateOf(raw[2])
		return nil
	}, uuidsOf(e.IDs), int16(c.Op), int32(c.Priority), c.Queue, timeOrNull(c.RunAt), c.Delay.Microseconds(), clean(c.Reason))
	if err != nil {
		return nil, err
	}
	return edited, nil
}
