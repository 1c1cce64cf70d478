package postgres

import (
	"context"
	"encoding/binary"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/internal/bell"
	"github.com/tuskqueue/tusk/store"
)

const (
	crowdEvery  = 20 * time.Second // for how long the list of a queue's workers is believed
	mostCounted = 50
	mostAsked   = 50 // queues of one look

	// Of the workers that hear of a task, one looks for it at once, the next after courtesy, and each further one after
	// twice as long, but after longestCourtesy at most.
	courtesy        = 3 * time.Millisecond
	longestCourtesy = 60 * time.Millisecond
	// For so long one is the first. Processes on machines whose clocks differ by more do not agree who that is.
	turnOfFirst = 25 * time.Millisecond
)

// crowd keeps all who hear of a few tasks from looking for them at the same moment: the
// first that comes takes them, and the others find that out with less.
type crowd struct {
	s    *Store
	wake func(name string)

	mu      sync.Mutex
	pending map[string]pendingWake // queues of which it will tell soon
}

type pendingWake struct {
	timer *time.Timer
	at    time.Time
}

// tell wakes at once whoever leads, and where a worker is alone or the first, and else a moment later. Of queues that no
// worker of this process takes from nobody asks who else does: there may be many, and whom it wakes lets them be.
func (c *crowd) tell(queue string) {
	var wait time.Duration
	now := time.Now()
	if !bell.Leads(queue) && c.s.near.has(queue) {
		wait = courtesyOf(placeOf(c.s.attendant.idsOf(c.s), c.s.workersOf(queue), now))
	}
	if wait == 0 {
		c.tellNow(queue)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p, waits := c.pending[queue]
	if waits && !p.at.After(now.Add(wait)) {
		return
	}
	if waits {
		p.timer.Stop()
	}
	c.pending[queue] = pendingWake{time.AfterFunc(wait, func() { c.tellNow(queue) }), now.Add(wait)}
}

func (c *crowd) tellNow(queue string) {
	c.mu.Lock()
	if p, waits := c.pending[queue]; waits {
		p.timer.Stop()
		delete(c.pending, queue)
	}
	c.mu.Unlock()
	c.wake(queue)
}

// courtesyOf is how long a worker lets others go before it.
func courtesyOf(place int) time.Duration {
	if place == 0 {
		return 0
	}
	return min(courtesy<<min(place-1, 10), longestCourtesy)
}

// placeOf is the place of the first of a process's workers among all workers of a queue. The order changes with time, and
// processes whose clocks agree come to the same. A process without a worker in the list comes last.
func placeOf(mine, all []store.ID, now time.Time) int {
	turn := uint64(now.UnixNano() / int64(turnOfFirst))
	first, place := uint64(math.MaxUint64), 0
	for _, id := range mine {
		if slices.Contains(all, id) {
			first = min(first, shuffled(id, turn))
		}
	}
	for _, id := range all {
		if shuffled(id, turn) < first {
			place++
		}
	}
	return place
}

// shuffled is a number for a worker that is another in each turn, by the last step of SplitMix64 (Steele, Lea, Flood).
func shuffled(id store.ID, turn uint64) uint64 {
	x := binary.BigEndian.Uint64(id[:8]) ^ binary.BigEndian.Uint64(id[8:]) + turn*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// counts are the workers that take from queues, about.
type counts struct {
	mu  sync.Mutex
	all map[string]counted
}

type counted struct {
	workers []store.ID
	at      time.Time
}

// workersOf says which workers take from a queue, as far as is known. Looks tell; where there was none for a while
// they are asked for in the background.
func (s *Store) workersOf(queue string) []store.ID {
	s.workers.mu.Lock()
	defer s.workers.mu.Unlock()
	c := s.workers.all[queue]
	if time.Since(c.at) > crowdEvery {
		s.workers.set(queue, c.workers)
		go s.countWorkers(queue)
	}
	return c.workers
}

// set keeps a list, with the lock held.
func (c *counts) set(queue string, workers []store.ID) {
	if c.all == nil || len(c.all) > 10000 {
		c.all = map[string]counted{}
	}
	c.all[queue] = counted{workers, time.Now()}
}

// fewestOf is the least that workersOf says of queues.
func (s *Store) fewestOf(queues []string) int {
	fewest := mostCounted
	for _, queue := range queues {
		fewest = min(fewest, len(s.workersOf(queue)))
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

// take takes in which workers were found.
func (c *counts) take(queues []string, workers []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := arrayOf(workers)
	for i := range min(list.n, len(queues)) {
		var ids []store.ID
		for raw := range slices.Chunk(list.next(), len(store.ID{})) {
			ids = append(ids, idOf(raw))
		}
		c.set(queues[i], ids)
	}
}
