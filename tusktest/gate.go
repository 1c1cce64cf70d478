package tusktest

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/tuskqueue/tusk/store"
)

// gate is a store that lets a worker claim one task at a time, when the test permits it, and
// notes when the leader has done its chores.
type gate struct {
	store.Store
	stored func() // called when tasks were stored outside a transaction

	mu     sync.Mutex
	permit chan claimed // receives the answer to the next claim; nil if claims find nothing
	began  [2]int       // how many rounds of Admit and of Turns have begun
	ended  [2]int       // the last round of each that has ended
	grants int          // the round of Turns whose turns are being granted; 0 if none are
}

// claimed is the answer to a permitted claim.
type claimed struct {
	task *store.Task // nil if there was none
	err  error
}

// Unwrap lets store.As find the capabilities of the engine.
func (g *gate) Unwrap() store.Store { return g.Store }

// Enqueue implements store.Enqueuer.
func (g *gate) Enqueue(ctx context.Context, tasks []store.NewTask) ([]store.Enqueued, error) {
	results, err := g.Store.Enqueue(ctx, tasks)
	if err == nil {
		g.stored()
	}
	return results, err
}

// Claim implements store.Leaser.
func (g *gate) Claim(ctx context.Context, r store.ClaimRequest) ([]store.Task, error) {
	g.mu.Lock()
	permit := g.permit
	g.permit = nil
	g.mu.Unlock()
	if permit == nil {
		return nil, nil
	}
	r.Limit = 1
	tasks, err := g.Store.Claim(ctx, r)
	answer := claimed{err: err}
	if len(tasks) > 0 {
		answer.task = &tasks[0]
	}
	permit <- answer
	return tasks, err
}

// let permits the next claim and returns the channel that receives its answer.
func (g *gate) let() <-chan claimed {
	permit := make(chan claimed, 1)
	g.mu.Lock()
	g.permit = permit
	g.mu.Unlock()
	return permit
}

// Admit implements store.Keeper.
func (g *gate) Admit(ctx context.Context, term int64, limit int) (store.Admitted, error) {
	number := g.begin(0)
	admitted, err := g.Store.Admit(ctx, term, limit)
	if err == nil {
		g.end(0, number)
	}
	return admitted, err
}

// Oversee implements store.Overseer. If it finds nothing to admit, or no task that waits for a turn, that counts as a
// round of the chore, because the leader then does not call it.
func (g *gate) Oversee(ctx context.Context, by store.Candidate, kinds ...string) (store.Chores, error) {
	engine, ok := store.As[store.Overseer](g.Store)
	if !ok {
		return store.Chores{}, errors.ErrUnsupported // the leader then calls each chore
	}
	admit, turns := g.begin(0), g.begin(1)
	c, err := engine.Oversee(ctx, by, kinds...)
	if err != nil {
		return c, err
	}
	if c.Admit != 0 {
		g.end(0, admit)
	}
	if !c.Turns {
		g.end(1, turns)
	}
	return c, nil
}

// Turns implements store.Keeper. If tasks wait for their turn, the leader grants turns before
// it calls Turns again, so that round has ended when the next one begins.
func (g *gate) Turns(ctx context.Context, term int64, groups, heads int) ([]store.Turns, error) {
	if term == 0 {
		return g.Store.Turns(ctx, term, groups, heads)
	}
	g.end(1, g.grantsFor(0))
	number := g.begin(1)
	turns, err := g.Store.Turns(ctx, term, groups, heads)
	switch {
	case err != nil:
	case slices.ContainsFunc(turns, func(of store.Turns) bool { return len(of.Waiting) > 0 }):
		g.grantsFor(number)
	default:
		g.end(1, number)
	}
	return turns, err
}

// Grant implements store.Keeper.
func (g *gate) Grant(ctx context.Context, term int64, ids []store.ID) (int, error) {
	n, err := g.Store.Grant(ctx, term, ids)
	if err != nil {
		g.grantsFor(0)
	}
	return n, err
}

// begin counts a chore and returns its number.
func (g *gate) begin(of int) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.began[of]++
	return g.began[of]
}

// end notes that a round of a chore has done its work. Number 0 means no round.
func (g *gate) end(of, number int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended[of] = max(g.ended[of], number)
}

// grantsFor sets the round of Turns whose turns are being granted, and returns the one before.
func (g *gate) grantsFor(number int) (before int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	before, g.grants = g.grants, number
	return before
}

// chores returns a function that reports whether a round of each chore has begun and ended
// since this call.
func (g *gate) chores() func() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	began := g.began
	return func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.ended[0] > began[0] && g.ended[1] > began[1]
	}
}
