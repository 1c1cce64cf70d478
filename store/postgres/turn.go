package postgres

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/tuskqueue/tusk/store"
)

// Turns implements store.Keeper.
func (s *Store) Turns(ctx context.Context, term int64, groups, heads int) ([]store.Turns, error) {
	var all []store.Turns
	steps := s.inOrder(s.do("sum_turns"), s.do("turns", groups, heads).into(func(raw [][]byte) error {
		all = append(all, store.Turns{
			Queue: string(raw[0]), Tenant: string(raw[1]), Partition: string(raw[2]), Waiting: idsOf(raw[3]),
		})
		return nil
	}))
	if term == 0 {
		steps = slices.Delete(steps, 1, 2)
	} else {
		steps = slices.Insert(steps, 1, s.do("leads_still", term))
	}
	err := s.read(ctx, steps)
	if err != nil {
		s.holders.lose()
		return nil, fmt.Errorf("turns: %w", err)
	}
	counts, err := s.holders.counts(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("turns: who has one: %w", err)
	}
	for i, g := range all {
		of := turnGroup{g.Queue, g.Tenant, g.Partition}
		all[i].Held = counts[of]
		delete(counts, of)
	}
	for _, of := range slices.SortedFunc(maps.Keys(counts), turnGroup.compare) {
		all = append(all, store.Turns{Queue: of.queue, Tenant: of.tenant, Partition: of.partition, Held: counts[of]})
	}
	return all, nil
}

// Grant implements store.Keeper.
func (s *Store) Grant(ctx context.Context, term int64, ids []store.ID) (granted int, err error) {
	var queues []string
	err = s.write(ctx, s.inOrder(s.do("hold_lead", term), s.do("grant", uuidsOf(ids)).into(func(raw [][]byte) error {
		granted, queues = int(int32Of(raw[0])), textsOf(raw[1])
		return nil
	})))
	if err != nil {
		return 0, fmt.Errorf("grant: %w", err)
	}
	if granted != len(ids) {
		ids = nil // some are not there
	}
	s.present(queues, ids)
	return granted, nil
}
