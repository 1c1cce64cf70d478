package ledgers

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// In a cluster, a transaction commits on one node after the other. So a task may be visible before the one that it
// needs, for a moment, or until a lost node is back and its prepared transactions have ended. But by then every node
// has prepared its part. So if a needed task is found nowhere, it has been deleted only if it is still not found after
// the end of all transactions that were prepared at some moment after it was needed. Until then its children wait.

// prepared returns the prepared transactions in the databases of all ledgers, or nil unless all answer.
func (s *Store) prepared(ctx context.Context, all []*ledger) map[string]bool {
	parts, errs := each(all, func(_ int, l *ledger) ([]string, error) {
		return ask(ctx, l, func(ctx context.Context, e *postgres.Store) ([]string, error) { return e.Prepared(ctx) })
	})
	if errors.Join(errs...) != nil {
		return nil
	}
	names := map[string]bool{}
	for _, part := range parts {
		for _, name := range part {
			names[name] = true
		}
	}
	return names
}

// nowhere is the ledger of a task that is not found but may appear.
const nowhere = -1

// parentsOf is whereAre for tasks that others are about to need.
func (s *Store) parentsOf(ctx context.Context, all []*ledger, ids []store.ID) (map[store.ID]spot, error) {
	slices.SortFunc(ids, compareIDs)
	ids = slices.Compact(ids)
	found, err := s.whereAre(ctx, all, ids)
	missing := notIn(ids, found)
	if err != nil || len(all) == 1 || len(missing) == 0 {
		return found, err
	}
	more, err := s.mayCome(ctx, all)
	if err != nil {
		return nil, err
	}
	later, err := s.whereAre(ctx, all, missing) // tasks may have appeared since the first look
	maps.Copy(found, later)
	if more {
		expect(found, missing)
	}
	return found, err
}

// expect adds the ids that are not found, as tasks that may appear.
func expect(found map[store.ID]spot, ids []store.ID) {
	for _, id := range notIn(ids, found) {
		found[id] = spot{nowhere, store.Pending}
	}
}

// mayCome reports whether tasks that are not found may still appear, from letters or prepared transactions.
func (s *Store) mayCome(ctx context.Context, all []*ledger) (bool, error) {
	needs, errs := together(ctx, s, all, func(ctx context.Context, at []int,
		on []*postgres.Store) ([]postgres.Needs, error) {
		return postgres.NeedsOf(ctx, on, make([]store.ID, len(at)), 0, letters)
	})
	if err := errors.Join(errs...); err != nil {
		return false, err
	}
	mail := slices.ContainsFunc(needs, func(n postgres.Needs) bool { return n.Mail })
	if mail || !s.comesApart {
		return mail, nil
	}
	prepared := s.prepared(ctx, all)
	return prepared == nil || len(prepared) > 0, nil
}

func notIn(ids []store.ID, found map[store.ID]spot) (missing []store.ID) {
	for _, id := range ids {
		if _, is := found[id]; !is {
			missing = append(missing, id)
		}
	}
	return missing
}

// missed are tasks that looks did not find.
type missed struct {
	during map[string]bool   // transactions that were prepared at some moment
	once   map[store.ID]bool // tasks not found since that moment
	long   map[store.ID]bool // tasks not found since an earlier moment, whose transactions have ended
}

// gone returns which of the tasks that were just not found have been deleted. prepared are the transactions that were
// prepared after the tasks were known to be needed and before the look.
func (f *far) gone(ids []store.ID, found map[store.ID]spot, prepared map[string]bool) map[store.ID]bool {
	if prepared == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	m := &f.missed
	over := true
	for name := range m.during {
		over = over && !prepared[name]
	}
	if over {
		if m.long == nil || len(m.long) > farMost {
			m.long = map[store.ID]bool{}
		}
		maps.Copy(m.long, m.once)
		m.during, m.once = prepared, map[store.ID]bool{}
	}
	gone := map[store.ID]bool{}
	for _, id := range notIn(ids, found) {
		if gone[id] = m.long[id] || len(prepared) == 0; over && !gone[id] {
			m.once[id] = true
		}
	}
	return gone
}
