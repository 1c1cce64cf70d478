package ledgers

import (
	"context"
	"errors"
	"slices"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// Turns implements store.Keeper. It fails unless all ledgers answer, because a turn that is held in any of them counts
// toward the limit. It also fails while a server has never answered, because that may have ledgers that this process
// does not know. Turns that end during the call make the count too large until the next call. It is never too small.
func (s *Store) Turns(ctx context.Context, term int64, groups, heads int) ([]store.Turns, error) {
	all, err := s.ledgers(ctx)
	if err == nil {
		err = s.notUnmet()
	}
	if err != nil {
		return nil, err
	}
	idle := map[int]postgres.Chores{}
	if term != 0 {
		idle = s.idle(ctx, all, term)
	}
	parts, errs := each(all, func(no int, l *ledger) ([]store.Turns, error) {
		if c, known := idle[no]; known && !c.Turns {
			return nil, nil // it has no turns
		}
		return ask(ctx, l, func(ctx context.Context, e *postgres.Store) ([]store.Turns, error) {
			return e.Turns(ctx, term, groups, heads)
		})
	})
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	lines := linesOf(parts)
	answer := make([]store.Turns, 0, len(lines))
	for i, l := range lines {
		if i >= groups && len(l.waiting) > 0 && l.held == 0 {
			continue
		}
		t := store.Turns{Queue: l.queue, Tenant: l.tenant, Partition: l.partition, Held: l.held}
		if i < groups {
			t.Waiting = l.heads(heads)
		}
		answer = append(answer, t)
	}
	return answer, nil
}

// group identifies the tasks that share a limit.
type group struct{ queue, tenant, partition string }

// line is a group across all ledgers.
type line struct {
	group
	held    int64
	waiting [][]store.ID // by ledger, in its order
}

// linesOf merges the groups of all ledgers. Groups with waiting tasks come first. They keep the order of their ledger;
// between ledgers, the group with the oldest task comes first.
func linesOf(parts [][]store.Turns) (lines []*line) {
	all := map[group]*line{}
	for _, part := range parts {
		for i := range part {
			t := &part[i]
			at := group{t.Queue, t.Tenant, t.Partition}
			if all[at] == nil {
				all[at] = &line{group: at}
			}
			all[at].held += t.Held
			if len(t.Waiting) > 0 {
				all[at].waiting = append(all[at].waiting, t.Waiting)
			}
		}
	}
	take := func(t *store.Turns) {
		at := group{t.Queue, t.Tenant, t.Partition}
		if l := all[at]; l != nil {
			lines = append(lines, l)
			delete(all, at)
		}
	}
	for next := oldest(parts); next >= 0; next = oldest(parts) {
		take(&parts[next][0])
		parts[next] = parts[next][1:]
	}
	for _, part := range parts {
		for i := range part {
			take(&part[i])
		}
	}
	return lines
}

// oldest returns the ledger whose next group has the oldest waiting task, or -1 if no task waits.
func oldest(parts [][]store.Turns) int {
	best, first := -1, store.ID{}
	for i, part := range parts {
		if len(part) == 0 || len(part[0].Waiting) == 0 {
			continue
		}
		if id := slices.MinFunc(part[0].Waiting, compareIDs); best < 0 || compareIDs(id, first) < 0 {
			best, first = i, id
		}
	}
	return best
}

// heads merges the first waiting tasks of all ledgers: the first of each, sorted by id, then the second of each, and so
// on.
func (l *line) heads(most int) (ids []store.ID) {
	for k := 0; len(ids) < most; k++ {
		var row []store.ID
		for _, waiting := range l.waiting {
			if k < len(waiting) {
				row = append(row, waiting[k])
			}
		}
		if len(row) == 0 {
			break
		}
		slices.SortFunc(row, compareIDs)
		ids = append(ids, row...)
	}
	return ids[:min(len(ids), most)]
}

func compareIDs(a, b store.ID) int { return slices.Compare(a[:], b[:]) }

// Grant implements store.Keeper. Each ledger ignores the tasks of others.
func (s *Store) Grant(ctx context.Context, term int64, ids []store.ID) (granted int, err error) {
	all, err := s.ledgers(ctx)
	if err != nil {
		return 0, err
	}
	counts, errs := each(all, func(_ int, l *ledger) (int, error) {
		return ask(ctx, l, func(ctx context.Context, e *postgres.Store) (int, error) { return e.Grant(ctx, term, ids) })
	})
	for no, n := range counts {
		s.turns.heat(no, n > 0)
		if granted += n; errs[no] != nil {
			err = errs[no]
		}
	}
	return granted, err
}
