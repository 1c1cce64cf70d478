package ledgers

import (
	"context"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

var _ store.Overseer = (*Store)(nil)

// Oversee implements store.Overseer. Admit is due as long as any ledger needs tasks of other ledgers.
func (s *Store) Oversee(ctx context.Context, by store.Candidate, kinds ...string) (c store.Chores, err error) {
	all, err := s.ledgers(ctx)
	if err != nil {
		return c, err
	}
	told := s.choresOf(ctx, all, by.Term, 1, kinds...)
	if len(told) < len(all) { // some did not answer, so everything may be due
		return store.Chores{Rescue: true, Turns: true, Records: kinds}, nil
	}
	c.Admit = -1
	for no, one := range told {
		c.Rescue, c.Turns = c.Rescue || one.Rescue, c.Turns || one.Turns
		c.Records = append(c.Records, one.Records...)
		if next, nothing := admitsNothing(told, no); !nothing || one.Far {
			c.Admit = 0
		} else if next >= 0 && (c.Admit < 0 || next < c.Admit) {
			c.Admit = next
		}
	}
	return c, nil
}

// idle is choresOf for chores that take one round trip per ledger. It leaves out servers with a single ledger, where
// asking costs as much as the chore.
func (s *Store) idle(ctx context.Context, all []*ledger, term int64) map[int]postgres.Chores {
	if len(all) == 1 {
		return nil
	}
	return s.choresOf(ctx, all, term, 2)
}

// choresOf asks each server with at least fewest ledgers, in one round trip, which work its ledgers have. The result
// lacks ledgers that did not answer; the chores have to ask those.
func (s *Store) choresOf(
	ctx context.Context, all []*ledger, term int64, fewest int, kinds ...string,
) map[int]postgres.Chores {
	told := map[int]postgres.Chores{}
	within, cancel := atFirst(ctx, probeWithin)
	defer cancel()
	var mu sync.Mutex
	var done sync.WaitGroup
	for _, at := range s.servers() {
		numbers, engines := presentAt(all, at)
		if len(engines) < fewest {
			continue
		}
		done.Go(func() {
			chores, err := askTogether(within, all, numbers, func(ctx context.Context) ([]postgres.Chores, error) {
				return postgres.ChoresOf(ctx, store.Candidate{Term: term}, engines, letters, kinds...)
			})
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for i, c := range chores {
				if c.Leads {
					told[numbers[i]] = c
				}
			}
		})
	}
	done.Wait()
	return told
}

// admitsNothing reports whether a ledger has nothing to admit now, and when it will have.
func admitsNothing(idle map[int]postgres.Chores, no int) (next time.Duration, nothing bool) {
	c, known := idle[no]
	return c.Next, known && !c.Doubts && c.Next != 0
}
