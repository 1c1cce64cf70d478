package ledgers

import (
	"context"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/store/postgres"
)

// idle asks each server once what there is to do in all its ledgers. Ledgers
// that did not tell are left out: they are to be asked for the chore itself.
func (s *Store) idle(ctx context.Context, all []*ledger, term int64) map[int]postgres.Chores {
	idle := map[int]postgres.Chores{}
	if len(all) == 1 {
		return idle
	}
	within, cancel := context.WithTimeout(ctx, suspectAfter)
	defer cancel()
	var mu sync.Mutex
	var done sync.WaitGroup
	for _, at := range s.servers() {
		numbers, engines := s.present(at)
		if len(engines) < 2 {
			continue
		}
		done.Go(func() {
			chores, err := postgres.ChoresOf(within, term, engines)
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for i, c := range chores {
				if c.Leads {
					idle[numbers[i]] = c
				}
			}
		})
	}
	done.Wait()
	return idle
}

// admitsNothing reports whether a ledger has nothing to admit, and when it will have.
func admitsNothing(idle map[int]postgres.Chores, no int) (next time.Duration, nothing bool) {
	c, known := idle[no]
	return c.Next, known && !c.Doubts && c.Next != 0
}
