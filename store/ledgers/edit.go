package ledgers

import (
	"context"
	"errors"
	"slices"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// Edit implements store.Editor. It asks first the ledgers that the ids give. If some tasks are not found, and a ledger
// that may have them failed or is unknown, the error names them in a store.HeldError and gives the reason.
func (s *Store) Edit(ctx context.Context, e store.Edit) ([]store.Edited, error) {
	all, err := s.ledgers(ctx)
	if err != nil {
		return nil, err
	}
	if e.Change.Op == store.Retry { // a retry checks a task's needs again
		if err := s.refresh(ctx, all, e.IDs); err != nil {
			return nil, err
		}
	}
	done := map[store.ID]store.Edited{}
	var held, changed []store.ID
	ids := slices.Clone(e.IDs)
	slices.SortFunc(ids, compareIDs)
	ids = slices.Compact(ids)
	failed := inStages(all, ids, func(l *ledger, ids []store.ID) ([]store.ID, error) {
		part := store.Edit{IDs: inOrder(e.IDs, ids), Change: e.Change}
		edited, err := ask(ctx, l, func(ctx context.Context, e *postgres.Store) ([]store.Edited, error) {
			return e.Edit(ctx, part)
		})
		if h := new(store.HeldError); errors.As(err, &h) {
			held, err = append(held, h.Tasks...), nil
		}
		var missing []store.ID
		for _, one := range edited {
			switch done[one.ID] = one; one.Result {
			case store.Missing:
				missing = append(missing, one.ID)
			case store.Changed:
				changed = append(changed, one.ID)
			}
		}
		if err != nil {
			missing = ids
		}
		return missing, err
	})
	if op := e.Change.Op; op == store.Cancel || op == store.Delete {
		s.tell(ctx, all, changed)
	}
	var elsewhere []store.ID // in a ledger that failed or is unknown, or nowhere
	for _, id := range ids {
		if one, asked := done[id]; !asked || one.Result == store.Missing {
			elsewhere = append(elsewhere, id)
		}
	}
	switch {
	case len(elsewhere) == 0:
		failed = nil
	case failed == nil:
		failed = s.complete(ctx, all)
	}
	if failed != nil && len(elsewhere) == len(ids) {
		return nil, failed
	}
	if failed != nil {
		for _, id := range elsewhere {
			done[id], held = store.Edited{ID: id, Result: store.Refused}, append(held, id)
		}
	}
	answer := make([]store.Edited, len(e.IDs))
	for i, id := range e.IDs {
		answer[i] = done[id]
	}
	if len(held) > 0 {
		return answer, errors.Join(&store.HeldError{Tasks: held}, failed)
	}
	return answer, nil
}

// inOrder returns ids in the order in which they are in given.
func inOrder(given, ids []store.ID) []store.ID {
	return slices.DeleteFunc(slices.Clone(given), func(id store.ID) bool { return !slices.Contains(ids, id) })
}
