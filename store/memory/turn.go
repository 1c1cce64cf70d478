package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/tuskqueue/tusk/store"
)

// turn identifies the group of tasks whose turns are counted together.
type turn struct{ queue, tenant, partition string }

// turns are the number of tasks that have a turn, and the tasks that wait for one.
type turns struct {
	held    int64
	waiting []placed // by priority, then by arrival
}

func (t *task) turn() turn { return turn{t.Queue, t.Tenant, t.Partition} }

func (s *Store) turnsOf(of turn) *turns {
	g := s.turns[of]
	if g == nil {
		g = &turns{}
		s.turns[of] = g
	}
	return g
}

// queueUp makes a pending task wait for its turn.
func (s *Store) queueUp(entry placed) {
	g := s.turnsOf(entry.turn())
	g.waiting = slices.DeleteFunc(g.waiting, placed.gone) // their order may have changed
	at, _ := slices.BinarySearchFunc(g.waiting, entry, func(a, b placed) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.at, b.at))
	})
	g.waiting = slices.Insert(g.waiting, at, entry)
}

// Turns implements store.Keeper.
func (s *Store) Turns(ctx context.Context, term int64, groups, heads int) ([]store.Turns, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("turns: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.leads(term, clock()); term != 0 && err != nil {
		return nil, fmt.Errorf("turns: %w", err)
	}
	type waiting struct {
		store.Turns
		since int64
	}
	var all []waiting
	var others []store.Turns
	for of, g := range s.turns {
		g.waiting = slices.DeleteFunc(g.waiting, placed.gone)
		answer := store.Turns{Queue: of.queue, Tenant: of.tenant, Partition: of.partition, Held: g.held}
		if len(g.waiting) == 0 {
			if g.held == 0 {
				delete(s.turns, of)
			} else {
				others = append(others, answer)
			}
			continue
		}
		w := waiting{Turns: answer, since: g.waiting[0].at}
		for _, p := range g.waiting {
			if w.since = min(w.since, p.at); len(w.Waiting) < heads {
				w.Waiting = append(w.Waiting, p.ID)
			}
		}
		all = append(all, w)
	}
	slices.SortFunc(all, func(a, b waiting) int { return cmp.Compare(a.since, b.since) })
	for _, w := range all[min(len(all), groups):] {
		if w.Waiting = nil; w.Held > 0 {
			others = append(others, w.Turns)
		}
	}
	slices.SortFunc(others, func(a, b store.Turns) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Partition, b.Partition))
	})
	answer := make([]store.Turns, 0, min(len(all), groups)+len(others))
	for _, w := range all[:min(len(all), groups)] {
		answer = append(answer, w.Turns)
	}
	return append(answer, others...), nil
}

// Grant implements store.Keeper.
func (s *Store) Grant(ctx context.Context, term int64, ids []store.ID) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("grant: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := clock()
	if err := s.leads(term, now); err != nil {
		return 0, fmt.Errorf("grant: %w", err)
	}
	b := s.batch(now)
	granted, _ := b.Grant(ids)
	s.apply(b)
	return granted, nil
}
