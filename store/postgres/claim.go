package postgres

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Claim implements store.Leaser. It calls the function claim. If it requests one task, which is
// likely to be in the lane of the last one, it calls the shorter procedure exchange.
func (s *Store) Claim(ctx context.Context, r store.ClaimRequest) ([]store.Task, error) {
	s.claims.Add(1)
	if err := s.mayWork(ctx); err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	a := askFor(&r)
	if lane := s.likely(a); lane != 0 && r.Limit == 1 && !r.Again {
		x := swap{ask: a, likely: lane}
		if err := s.repeat(ctx, func() error { return s.swap(ctx, &x) }); err != nil {
			return nil, fmt.Errorf("claim: %w", err)
		}
		return x.tasks, nil
	}
	c := claimed{about: min(2*int(s.claimed.Load()), r.Limit)}
	claim := s.claim
	if r.Again {
		claim = s.claimAgain
	}
	if err := claim(ctx, a, &c); err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	s.near.took(&r, c.tasks)
	if c.busy != 0 {
		s.passedOver(a, c.busy)
	}
	for i := range c.tasks {
		a.lent(&c.tasks[i], c.lanes[i])
	}
	return c.tasks, nil
}

// busyPause is the time after which workers claim again from a lane that was passed over. Another claim holds a lane
// for less than a millisecond; a task that is leased as it is stored holds it until it is on disk.
const busyPause = 3 * time.Millisecond

// passedOver rings for the queue of a lane that a claim passed over because somebody else held it.
func (s *Store) passedOver(a *ask, lane int64) {
	queue := a.names[lane>>16]
	time.AfterFunc(busyPause, func() { s.near.bell.Ring(queue) })
}

func (s *Store) claim(ctx context.Context, a *ask, c *claimed) error {
	name := "claim"
	if s.sparse.Load() && len(a.queues) <= fewQueues {
		name = "claim_sparse"
	}
	began := time.Now()
	if err := s.query(ctx, name, c.read, [16]byte(a.Worker), [16]byte(a.Token), a.queues, a.Limit, a.lock,
		s.fuller.Load(), s.packed.Load()); err != nil {
		return err
	}
	s.near.claims.add(time.Since(began))
	s.lane.Store(0)
	s.sparse.Store(len(c.tasks) == 0)
	if len(c.tasks) > 0 {
		s.fuller.Store(c.full)
		s.packed.Store(c.packs > 0)
		s.claimed.Store(int32(len(c.tasks)))
		s.lane.Store(c.lanes[0])
	}
	return nil
}

// claimAgain repeats a claim whose answer was lost. It claims nothing new: if the first call found no tasks, or never
// reached the server, there are none.
func (s *Store) claimAgain(ctx context.Context, a *ask, c *claimed) error {
	lives := false
	err := s.write(ctx, s.pinned(s.do("await_claim", a.lock), s.do("lives", [16]byte(a.Worker)).into(
		func([][]byte) error {
			lives = true
			return nil
		}), s.do("claimed", [16]byte(a.Token)).into(func(raw [][]byte) error {
		var t store.Task
		c.lanes = append(c.lanes, readTask(&t, raw))
		c.tasks = append(c.tasks, t)
		return nil
	})))
	if err == nil && !lives {
		err = store.ErrWorkerDead
	}
	return err
}

// fewQueues is the maximum number of queues for which a claim uses claim_sparse. With more queues,
// the function claim itself skips those without tasks.
const fewQueues = 4

// ask is a claim request, as the functions in the database take it.
type ask struct {
	*store.ClaimRequest
	queues []int64          // the first lane of each queue
	names  map[int64]string // queues by the hashes of their names
	lock   int64            // the advisory lock of the token
}

func askFor(r *store.ClaimRequest) *ask {
	a := &ask{ClaimRequest: r, queues: make([]int64, 0, len(r.Queues)), names: make(map[int64]string, len(r.Queues)),
		lock: int64(binary.BigEndian.Uint64(r.Token[:8]))}
	for _, queue := range r.Queues {
		hash := hashOf(queue)
		if _, twice := a.names[hash]; !twice {
			a.names[hash] = queue
			a.queues = append(a.queues, hash<<16)
		}
	}
	return a
}

// queuesOf returns the queues of an array of lanes.
func (a *ask) queuesOf(lanes []byte) (queues []string) {
	if len(lanes) < 20 {
		return nil
	}
	list := arrayOf(lanes)
	for range list.n {
		queue := a.names[int64Of(list.next())>>16]
		if !slices.Contains(queues, queue) {
			queues = append(queues, queue)
		}
	}
	return queues
}

// lent sets the fields that follow from a task's lane and the claim.
func (a *ask) lent(t *store.Task, lane int64) {
	t.Queue, t.Priority = a.names[lane>>16], priorityOf(lane)
	t.State, t.Lease, t.Worker = store.Running, a.Token, a.Worker
}
