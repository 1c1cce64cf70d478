package postgres

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/internal/bell"
)

const (
	crowdEvery  = 20 * time.Second // how often the workers of a queue are counted
	mostCounted = 20
	// A listener lets others go before it by up to so long for each other worker of the
	// queue, but not more than longestCourtesy in all.
	courtesy        = 3 * time.Millisecond
	longestCourtesy = 40 * time.Millisecond
)

// crowd keeps all who hear of a few tasks from looking for them at the same moment: the
// first that comes takes them, and the others find that out with less.
type crowd struct {
	s    *Store
	wake func(name string)

	mu      sync.Mutex
	pending map[string]bool // queues of which it will tell soon
}

// tell wakes at once whoever leads, and where a worker is alone, and else a moment later.
func (c *crowd) tell(queue string) {
	if bell.Leads(queue) {
		c.wake(queue)
		return
	}
	others := c.s.workersOf(queue) - 1
	if others <= 0 {
		c.wake(queue)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pending[queue] {
		return
	}
	c.pending[queue] = true
	time.AfterFunc(rand.N(min(time.Duration(others)*courtesy, longestCourtesy)), func() {
		c.mu.Lock()
		delete(c.pending, queue)
		c.mu.Unlock()
		c.wake(queue)
	})
}

// counts are how many workers take from queues, about.
type counts struct {
	mu  sync.Mutex
	all map[string]counted
}

type counted struct {
	workers int
	at      time.Time
}

// workersOf says how many workers take from a queue, as far as is known; it is counted in
// the background.
func (s *Store) workersOf(queue string) int {
	s.workers.mu.Lock()
	defer s.workers.mu.Unlock()
	if s.workers.all == nil || len(s.workers.all) > 10000 {
		s.workers.all = map[string]counted{}
	}
	c := s.workers.all[queue]
	if time.Since(c.at) > crowdEvery {
		s.workers.all[queue] = counted{c.workers, time.Now()}
		go s.countWorkers(queue)
	}
	return c.workers
}

// fewestOf is the least that workersOf says of queues.
func (s *Store) fewestOf(queues []string) int {
	fewest := mostCounted
	for _, queue := range queues {
		fewest = min(fewest, s.workersOf(queue))
	}
	return fewest
}

func (s *Store) countWorkers(queue string) {
	ctx, cancel := context.WithTimeout(context.Background(), notifyWithin)
	defer cancel()
	var n int
	if err := s.scan(ctx, "workers_of", []any{&n}, queue, mostCounted); err != nil {
		return // nobody relies on it
	}
	s.workers.mu.Lock()
	defer s.workers.mu.Unlock()
	s.workers.all[queue] = counted{n, time.Now()}
}
