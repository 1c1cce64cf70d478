package peers

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/tuskqueue/tusk/bench/harness"
)

// consumers runs the systems that are only SQL. They have no workers, so these are the loops that a
// user would write around their functions.
type consumers struct {
	loops   int // loops that fetch
	workers int // handlers at the same time, in all loops together
	pause   time.Duration
}

// take fetches a batch. It returns the numbers of its tasks, and a function to call when all of
// them have been handled, or nil if nothing is left to do.
type take func(ctx context.Context) (tasks []int, finish func(context.Context) error, err error)

// run loops until ctx ends. A batch that was taken is still handled and finished.
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

// handle runs a batch's handlers: one after another if they do nothing, otherwise in parallel.
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

// stopped drops an error that only says that ctx has ended.
func stopped(ctx context.Context, err error) error {
	if ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, ctx.Err())) {
		return nil
	}
	return err
}

// atOnce calls do for each task of a batch, some in parallel. It is for systems that enqueue tasks
// one by one.
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

// every repeats a statement. It takes the part of a scheduler or a daemon.
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
