package tusktest

import (
	"context"
	"sync"

	"github.com/tuskqueue/tusk/store"
)

// gate is a store that lets a worker claim one task when the test says so, and tells when
// the leader has done its chores.
type gate struct {
	store.Store
	stored func() // tasks were stored outside a transaction

	mu     sync.Mutex
	permit chan claimed // takes the answer to the next claim; nil: nothing may be claimed
	rounds [2]int       // of Admit and Turns that have ended
	began  [2]int       // of those that have begun
}

// claimed is the answer to a claim that was let through.
type claimed struct {
	task *store.Task // nil: there was none
	err  error
}

// Unwrap lets store.As find what the engine can do.
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

// let lets the next claim through and returns where its answer comes.
func (g *gate) let() <-chan claimed {
	permit := make(chan claimed, 1)
	g.mu.Lock()
	g.permit = permit
	g.mu.Unlock()
	return permit
}

// Admit implements store.Keeper.
func (g *gate) Admit(ctx context.Context, term int64, limit int) (store.Admitted, error) {
	defer g.round(0)()
	return g.Store.Admit(ctx, term, limit)
}

// Turns implements store.Keeper.
func (g *gate) Turns(ctx context.Context, term int64, groups, heads int) ([]store.Turns, error) {
	if term == 0 {
		return g.Store.Turns(ctx, term, groups, heads)
	}
	defer g.round(1)()
	return g.Store.Turns(ctx, term, groups, heads)
}

// round counts a chore; what it returns is called at its end.
func (g *gate) round(of int) func() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.began[of]++
	number := g.began[of]
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.rounds[of] = max(g.rounds[of], number)
	}
}

// chores returns a function that reports whether a round of each chore has begun and ended
// since.
func (g *gate) chores() func() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	began := g.began
	return func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.rounds[0] > began[0] && g.rounds[1] > began[1]
	}
}
