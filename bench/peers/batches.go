package peers

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/tuskqueue/tusk/bench/harness"
)

// consumers of the systems that are SQL: they have no workers, so these are the
// loops that a user would write around their functions.
type consumers struct {
	loops   int // that fetch
	workers int // handlers at once, of all loops together
	pause   time.Duration
}

// take fetches a batch and returns who is in it, and what to call when all of it
// has been handled; nil when nothing remains to be done.
type take func(ctx context.Context) (tasks []int, finish func(context.Context) error, err error)

// run loops until ctx ends. A batch that was taken is handled and finished.
func (c consumers) run(ctx context.Context, idle bool, take take, handle func(n int)) error {
	var all errgroup.Group
	for range c.loops {
		all.Go(func() error {
			for ctx.Err() == nil {
				tasks, finish, err := take(ctx)
				if err != nil {
					return stopped(ctx, err)
				}
				if len(tasks) == 0 {
					time.Sleep(c.pause)
					continue
				}
				c.handle(tasks, idle, handle)
				if finish == nil {
					continue
				}
				if err := finish(context.WithoutCancel(ctx)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return all.Wait()
}

// handle runs a batch's handlers: one after another when they have nothing to do,
// else at once.
func (c consumers) handle(tasks []int, idle bool, handle func(n int)) {
	if idle {
		for _, n := range tasks {
			handle(n)
		}
		return
	}
	var crew errgroup.Group
	crew.SetLimit(max(c.workers/c.loops, 1))
	for _, n := range tasks {
		crew.Go(func() error { handle(n); return nil })
	}
	_ = crew.Wait() // handlers do not fail
}

// stopped makes nothing of an error that only says that ctx has ended.
func stopped(ctx context.Context, err error) error {
	if ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, ctx.Err())) {
		return nil
	}
	return err
}

// atOnce calls do for each of a batch, some at once: for systems that enqueue one
// by one.
func atOnce(limit int, tasks []harness.Task, do func(harness.Task) error) error {
	if len(tasks) == 1 {
		return do(tasks[0])
	}
	var crew errgroup.Group
	crew.SetLimit(limit)
	for _, t := range tasks {
		crew.Go(func() error { return do(t) })
	}
	return crew.Wait()
}

// every repeats a statement: the part of a scheduler or a daemon.
func every(ctx context.Context, pool *pgxpool.Pool, period time.Duration, statement string) error {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if _, err := pool.Exec(ctx, statement); err != nil {
			return stopped(ctx, err)
		}
	}
}
