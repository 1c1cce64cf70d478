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
	crowdEvery  = 20 * time.Second // how long the list of a queue's workers is used
	emptyEvery  = time.Second      // the same for a queue without workers, which may just be starting
	mostCounted = 50               // workers of a queue
	mostAsked   = 50               // queues of one look

	// When workers are notified of a task, the first claims at once. The second waits for courtesy, or half as long again
	// as claims take, up to turnOfFirst. Each further one waits twice as long as the previous one, up to longestCourtesy.
	courtesy        = 3 * time.Millisecond
	longestCourtesy = 60 * time.Millisecond
	// turnOfFirst is how long one worker stays the first. Processes whose clocks differ by more do not agree on it.
	turnOfFirst = 25 * time.Millisecond
)

// crowd keeps workers that are notified of a few tasks from claiming at the same moment. The first one takes the
// tasks, and the others find that out at a lower cost.
type crowd struct {
	s    *Store
	wake func(name string)

	mu      sync.Mutex
	pending map[string]pendingWake // queues for which wake will soon be called
}

type pendingWake struct {
	timer *time.Timer
	at    time.Time
}

// tell calls wake at once for the bells of the leader, and for a queue if a worker of this process is its only or its
// first one. Otherwise it calls wake a moment later. If no worker of this process claims from a queue, tell also
// calls wake at once. It does not read the workers of such queues, because there may be many, and wake ignores them.
func (c *crowd) tell(queue string) {
	var wait time.Duration
	now := time.Now()
	if !bell.Leads(queue) && c.s.near.has(queue) {
		wait = courtesyOf(placeOf(c.s.attendant.idsOf(c.s), c.s.workersOf(queue), now), c.s.near.claims.time())
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

// courtesyOf returns how long a worker waits for others, given its place and how long claims take.
func courtesyOf(place int, claims time.Duration) time.Duration {
	if place == 0 {
		return 0
	}
	second := min(max(courtesy, claims+claims/2), turnOfFirst)
	return min(second<<min(place-1, 10), longestCourtesy)
}

// placeOf returns the place of the first of a process's workers among all workers of a queue, from 0. The order changes
// with time, and is the same in all processes whose clocks agree. A process without a worker in the list comes last.
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

// shuffled returns a number for a worker that differs in each turn. It uses the last step of SplitMix64 (Steele, Lea,
// Flood).
func shuffled(id store.ID, turn uint64) uint64 {
	x := binary.BigEndian.Uint64(id[:8]) ^ binary.BigEndian.Uint64(id[8:]) + turn*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// counts holds the workers that take from queues, as they were last counted.
type counts struct {
	mu  sync.Mutex
	all map[string]counted
}

type counted struct {
	workers []store.ID
	at      time.Time
}

// workersOf returns the workers that claim from a queue, as far as known. Look updates the list. If it has not run
// for a while, workersOf reads the list in the background.
func (s *Store) workersOf(queue string) []store.ID {
	s.workers.mu.Lock()
	defer s.workers.mu.Unlock()
	c := s.workers.all[queue]
	if age := time.Since(c.at); age > crowdEvery || len(c.workers) == 0 && age > emptyEvery {
		s.workers.set(queue, c.workers)
		go s.countWorkers(queue)
	}
	return c.workers
}

// set stores a list. The caller holds the lock.
func (c *counts) set(queue string, workers []store.ID) {
	if c.all == nil || len(c.all) > 10000 {
		c.all = map[string]counted{}
	}
	c.all[queue] = counted{workers, time.Now()}
}

// fewestOf returns the number of workers of the queue that has the fewest, at most mostCounted.
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
	_ = s.query(ctx, "look_at", func(raw [][]byte) error { // nothing relies on it
		s.workers.take(queues, raw[7])
		return nil
	}, nil, nil, queues, mostCounted)
}

// old returns the queues whose workers should be counted again, so that workersOf need not do so in the background.
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

// take stores the workers that Look has read.
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
