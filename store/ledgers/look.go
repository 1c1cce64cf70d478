package ledgers

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

var _ store.Looker = (*Store)(nil)

// Look implements store.Looker, with one round trip to each server. Records and the leader are home's. The next claim
// begins with the ledgers that have tasks. If a server fails, its ledgers count as having tasks of all queues; ledgers
// that are away count as having none.
func (s *Store) Look(ctx context.Context, queues []string, kinds ...string) (seen store.Sight, err error) {
	if len(queues) == 0 {
		return atHome(ctx, s, func(ctx context.Context, e *postgres.Store) (store.Sight, error) {
			return e.Look(ctx, nil, kinds...)
		})
	}
	all, err := s.ledgers(ctx)
	if err != nil {
		return seen, fmt.Errorf("look: %w", err)
	}
	servers := s.servers()
	looks := make([]look, len(servers))
	var done sync.WaitGroup
	for i, at := range servers {
		done.Go(func() { looks[i] = s.lookAt(ctx, at, all, queues, kinds) })
	}
	done.Wait()
	home, workers := store.ErrUnavailable, -1
	for _, look := range looks {
		for i, no := range look.numbers {
			here := store.Sight{Queues: queues}
			if look.err == nil {
				here = look.sights[i]
			}
			if no == 0 {
				home, seen.Records, seen.Leader, seen.Now = look.err, here.Records, here.Leader, here.Now
			}
			s.turns.heat(no, len(here.Queues) > 0)
			if workers < 0 || here.Workers < workers {
				workers = here.Workers
			}
			for _, queue := range here.Queues {
				if !slices.Contains(seen.Queues, queue) {
					seen.Queues = append(seen.Queues, queue)
				}
			}
		}
	}
	if home != nil {
		return store.Sight{}, fmt.Errorf("look: home: %w", home)
	}
	seen.Workers = max(workers, 0)
	return seen, nil
}

type look struct {
	numbers []int
	sights  []store.Sight
	err     error
}

func (s *Store) lookAt(ctx context.Context, at *server, all []*ledger, queues, kinds []string) (seen look) {
	numbers, engines := presentAt(all, at)
	if len(numbers) == 0 {
		return seen
	}
	if numbers[0] != 0 {
		kinds = nil
	}
	sights, err := ask(ctx, all[numbers[0]], func(ctx context.Context, _ *postgres.Store) ([]store.Sight, error) {
		return postgres.LookAll(ctx, engines, queues, kinds...)
	})
	if err != nil { // any of them may be the cause
		for _, no := range numbers {
			all[no].suspect()
		}
	}
	return look{numbers, sights, err}
}
