package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// work is the life of a worker. At its end the worker dies with the tasks that it holds, and another one follows.
func (h *history) work() {
	r := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	// A store of its own, which remembers its last claim.
	s, err := postgres.New(context.Background(), h.engine, postgres.Options{})
	if err != nil {
		h.t.Error(err)
		return
	}
	s.PackAll()
	for !h.stop.Load() && !h.t.Failed() {
		id := newID()
		beat := func(ctx context.Context) error {
			_, err := h.s.Extend(ctx, store.Beat{Worker: store.Worker{ID: id}, TTL: 2 * time.Second})
			return err
		}
		if err := bounded(beat); err != nil {
			h.t.Error(err)
			return
		}
		c := store.ClaimRequest{Worker: id, Queues: slices.Clone(historyQueues)}
		r.Shuffle(len(c.Queues), func(i, j int) { c.Queues[i], c.Queues[j] = c.Queues[j], c.Queues[i] })
		if r.IntN(2) == 0 { // the worker has one slot
			c.Queues, c.Limit = c.Queues[:1], 1
		}
		for range 100 {
			err := bounded(func(ctx context.Context) error { return h.attempt(ctx, r, s, c) })
			if errors.Is(err, store.ErrWorkerDead) {
				break
			}
			if err != nil {
				h.t.Error(err)
				return
			}
			if errors.Is(bounded(beat), store.ErrWorkerDead) {
				break
			}
		}
	}
}

// attempt claims tasks and finishes them, all or in parts, in any order. Some answers get lost, and some tasks are
// left unfinished.
func (h *history) attempt(ctx context.Context, r *rand.Rand, s *postgres.Store, c store.ClaimRequest) error {
	c.Token = store.NewToken()
	if c.Limit == 0 {
		c.Limit = 1 + r.IntN(60)
	}
	tasks, err := s.Claim(ctx, c)
	if err == nil && r.IntN(5) == 0 { // the answer was lost
		h.again.Add(1)
		c.Again = true
		before := len(tasks)
		if tasks, err = s.Claim(ctx, c); before > len(tasks) && err == nil {
			h.t.Errorf("a claim returned %d tasks, its repetition %d", before, len(tasks))
		}
	}
	if err != nil {
		return err
	}
	h.claims.Add(int64(len(tasks)))
	h.lend(tasks)
	if c.Limit == 1 && len(tasks) == 1 && r.IntN(2) == 0 {
		return h.exchange(ctx, r, s, c, tasks[0])
	}
	r.Shuffle(len(tasks), func(i, j int) { tasks[i], tasks[j] = tasks[j], tasks[i] })
	for len(tasks) > 0 {
		n := 1 + r.IntN(len(tasks))
		if r.IntN(20) == 0 {
			return nil // these are never finished by this worker
		}
		if err := h.end(ctx, r, tasks[:n]); err != nil {
			return err
		}
		tasks = tasks[n:]
	}
	return nil
}

// exchange ends each task and claims the next, until there is none or the worker has had enough. Some answers get
// lost.
func (h *history) exchange(
	ctx context.Context, r *rand.Rand, s *postgres.Store, c store.ClaimRequest, task store.Task,
) error {
	for r.IntN(20) > 0 {
		ended := completed([]store.Task{task})
		c.Token, c.Again = store.NewToken(), false
		x := s.Exchange(ctx, ended[0], c)
		if x.FinishErr != nil {
			return fmt.Errorf("exchange: finish: %w", x.FinishErr)
		}
		if x.Lost {
			h.accept(ended, []store.ID{task.ID})
		} else {
			h.accept(ended, nil)
		}
		if x.ClaimErr != nil {
			return x.ClaimErr
		}
		if r.IntN(5) == 0 { // the answer was lost
			h.again.Add(1)
			if lost, err := s.Finish(ctx, ended); err != nil || len(lost) != 1 {
				h.t.Errorf("a finish was accepted a second time, or failed: %v", err)
			}
			c.Again = true
			tasks, err := s.Claim(ctx, c)
			if err != nil {
				return err
			}
			if len(tasks) < len(x.Tasks) {
				h.t.Errorf("an exchange returned %v, its repetition nothing", x.Tasks[0].ID)
			}
			x.Tasks = tasks
		}
		h.claims.Add(int64(len(x.Tasks)))
		h.swaps.Add(int64(len(x.Tasks)))
		h.lend(x.Tasks)
		if len(x.Tasks) == 0 {
			return nil
		}
		task = x.Tasks[0]
	}
	return nil // the last one is never finished by this worker
}

// lending is a task under a lease.
type lending struct {
	id    store.ID
	lease store.Token
}

// lend notes what a worker got. A worker may stall after its claim until the leader has taken it for dead and handed
// its tasks back.
func (h *history) lend(tasks []store.Task) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range tasks {
		id := tasks[i].ID
		switch {
		case h.over[lending{id, tasks[i].Lease}]:
			continue
		case h.never[id]:
			h.t.Errorf("task %v was claimed and had never been committed", id)
		case h.ended[id] > 0:
			h.t.Errorf("task %v was claimed after its end", id)
		case !h.lent[id].IsZero():
			h.t.Errorf("task %v is lent twice at a time", id)
		}
		h.lent[id] = tasks[i].Lease
	}
}

// end finishes attempts in the worker's own transaction or in a user's.
func (h *history) end(ctx context.Context, r *rand.Rand, tasks []store.Task) error {
	back := r.IntN(6) == 0
	outcomes := completed(tasks)
	h.mu.Lock()
	for i := range outcomes {
		if back {
			outcomes[i].State = store.Available
			outcomes[i].Attempt--
			if h.lent[tasks[i].ID] == tasks[i].Lease {
				delete(h.lent, tasks[i].ID)
			}
		}
	}
	h.mu.Unlock()
	if h.inside.Load() && r.IntN(5) == 0 {
		return h.endInside(ctx, r, outcomes)
	}
	lost, err := h.finish(ctx, outcomes)
	if err != nil {
		return err
	}
	h.accept(outcomes, lost)
	if r.IntN(4) == 0 { // the answer was lost
		lost, err := h.finish(ctx, outcomes)
		if err == nil && len(lost) != len(outcomes) {
			h.t.Errorf("%d of %d finishes were accepted a second time", len(outcomes)-len(lost), len(outcomes))
		}
		return err
	}
	return nil
}

// finish tries again while tasks are held for a moment, for instance by the leader that takes back the tasks of a
// worker that missed its beats.
func (h *history) finish(ctx context.Context, outcomes []store.Outcome) (lost []store.ID, err error) {
	for {
		late, err := h.s.Finish(ctx, outcomes)
		lost = append(lost, late...)
		held := new(store.HeldError)
		if !errors.As(err, &held) || ctx.Err() != nil {
			return lost, err
		}
		outcomes = slices.DeleteFunc(slices.Clone(outcomes), func(o store.Outcome) bool {
			return !slices.Contains(held.Tasks, o.Task.ID)
		})
	}
}

func (h *history) endInside(ctx context.Context, r *rand.Rand, outcomes []store.Outcome) error {
	h.inTx.Add(1)
	outcomes = outcomes[:min(len(outcomes), 5)]
	tx, err := h.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx)
	u, err := h.s.Tx(tx)
	if err != nil {
		return err
	}
	lost, err := u.Finish(ctx, outcomes)
	if err != nil {
		return fmt.Errorf("finish inside: %w", err)
	}
	time.Sleep(time.Duration(r.IntN(30)) * time.Millisecond)
	if r.IntN(3) == 0 {
		if err := tx.Rollback(ctx); err != nil {
			return err
		}
		lost, err := h.finish(ctx, outcomes)
		if err == nil {
			h.accept(outcomes, lost)
		}
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	h.accept(outcomes, lost)
	return nil
}

func (h *history) accept(outcomes []store.Outcome, lost []store.ID) {
	gone := map[store.ID]bool{}
	for _, id := range lost {
		gone[id] = true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range outcomes {
		id := outcomes[i].Task.ID
		if gone[id] || !outcomes[i].State.Finished() {
			continue
		}
		h.ended[id]++
		delete(h.lent, id)
	}
}
