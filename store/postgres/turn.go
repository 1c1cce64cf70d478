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
	err := s.query(ctx, "turns", func(raw [][]byte) error {
		all = append(all, store.Turns{
			Queue: string(raw[0]), Tenant: string(raw[1]), Partition: string(raw[2]), Waiting: idsOf(raw[3]),
		})
		return nil
	}, term, groups, heads)
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
	err = s.query(ctx, "grant", func(raw [][]byte) error {
		granted, queues = int(int32Of(raw[0])), textsOf(raw[1])
		return nil
	}, term, uuidsOf(ids))
	if err != nil {
		return 0, fmt.Errorf("grant: %w", err)
	}
	if granted != len(ids) {
		ids = nil // some are not there
	}
	s.present(queues, ids)
	return granted, nil
}
