package postgres

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/internal/bell"
)

const (
	crowdEvery  = 20 * time.Second // for how long the count of a queue's workers is believed
	mostCounted = 20
	mostAsked   = 50 // queues of one look
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

// workersOf says how many workers take from a queue, as far as is known. Looks tell; where there was none for a while
// it is counted in the background.
func (s *Store) workersOf(queue string) int {
	s.workers.mu.Lock()
	defer s.workers.mu.Unlock()
	c := s.workers.all[queue]
	if time.Since(c.at) > crowdEvery {
		s.workers.set(queue, c.workers)
		go s.countWorkers(queue)
	}
	return c.workers
}

// set keeps a count, with the lock held.
func (c *counts) set(queue string, workers int) {
	if c.all == nil || len(c.all) > 10000 {
		c.all = map[string]counted{}
	}
	c.all[queue] = counted{workers, time.Now()}
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
	queues := []string{queue}
	_ = s.query(ctx, "look_at", func(raw [][]byte) error { // nobody relies on it
		s.workers.take(queues, raw[7])
		return nil
	}, nil, nil, queues, mostCounted)
}

// old are those of some queues whose workers are to be counted again, before others have to do it in the background.
func (c *counts) old(queues []string) (old []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, queue := range queues {
		if len(old) < mostAsked && time.Since(c.all[queue].at) > crowdEvery/2 {
			old = append(old, queue)
		}
	}
	return old
}

// take takes in how many workers were counted.
func (c *counts) take(queues []string, workers []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := arrayOf(workers)
	for i := range min(list.n, len(queues)) {
		c.set(queues[i], int(int64Of(list.next())))
	}
}
