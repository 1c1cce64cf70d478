package main

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store/postgres"
)

const (
	stepSlots    = 100 // tasks at a time
	stepsPerTask = 10
)

// steps measures durable steps: tasks with ten steps each, a hundred at a time, whose results are stored one after the
// other. Beside it, as many clients insert a row per step, each in a transaction of its own, through a pool of the same
// size. The figures are per step.
func steps(ctx context.Context, b *bench) ([]bar, error) {
	s := stepTasks{b.size(2_000, 20_000)}
	all, err := compare(ctx, b, "durable steps", []contender{{"tusk", s.tusk}, {"rows", s.rows}})
	if err != nil {
		return nil, err
	}
	ours, theirs := all["tusk"], all["rows"]
	return []bar{
		atLeast(1, ratios(ours, theirs, speed), "steps/s, of rows inserted one by one", "%.0f to %.0f",
			medianOf(ours, speed), medianOf(theirs, speed)),
		atMost(1, ratios(ours, theirs, server), "server CPU of a step, of that of a row", "%.0f us to %.0f us",
			medianOf(ours, server), medianOf(theirs, server)),
	}, nil
}

type stepTasks struct{ tasks int }

func (s stepTasks) tusk(ctx context.Context, pool *pgxpool.Pool, clock *clock) (int, error) {
	client, err := fresh(ctx, pool, postgres.Options{})
	if err != nil {
		return 0, err
	}
	var done atomic.Int64
	mux := tusk.NewMux()
	tusk.Handle(mux, func(ctx context.Context, t *tusk.Task[work]) error {
		for i := range stepsPerTask {
			_, err := tusk.Step(ctx, t, "step-"+strconv.Itoa(i), func(context.Context) (int, error) { return i, nil })
			if err != nil {
				return err
			}
		}
		done.Add(1)
		return nil
	})
	worker, err := tusk.NewWorker(client, mux, &tusk.WorkerConfig{Concurrency: stepSlots})
	if err != nil {
		return 0, err
	}
	working, stop := context.WithCancel(ctx)
	defer stop()
	var ended errgroup.Group
	ended.Go(func() error { return worker.Run(working) })
	through := func(tasks int) error {
		want := done.Load() + int64(tasks)
		err := enqueue(ctx, client, "default", tasks)
		for err == nil && done.Load() < want && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		return err
	}
	if err := through(stepSlots); err != nil { // connections, plans
		return 0, err
	}
	clock.start(ctx)
	for left := s.tasks; left > 0 && err == nil; left -= 1000 {
		err = through(min(left, 1000))
	}
	clock.stop(ctx)
	stop()
	if problem := ended.Wait(); err == nil {
		err = problem
	}
	return s.tasks * stepsPerTask, err
}

func (s stepTasks) rows(ctx context.Context, pool *pgxpool.Pool, clock *clock) (int, error) {
	_, err := pool.Exec(ctx, "create table step (task int, name text, result jsonb, primary key (task, name))")
	if err != nil {
		return 0, err
	}
	defer pool.Exec(context.WithoutCancel(ctx), "drop table step")
	var next atomic.Int64
	through := func(tasks int64) error {
		var clients errgroup.Group
		for range stepSlots {
			clients.Go(func() error {
				for {
					task := next.Add(1)
					if task > tasks {
						return nil
					}
					for i := range stepsPerTask {
						if _, err := pool.Exec(ctx, "insert into step values ($1, $2, $3)", task, "step-"+strconv.Itoa(i),
							strconv.Itoa(i)); err != nil {
							return err
						}
					}
				}
			})
		}
		return clients.Wait()
	}
	if err := through(stepSlots); err != nil {
		return 0, err
	}
	next.Store(stepSlots)
	clock.start(ctx)
	err = through(int64(stepSlots + s.tasks))
	clock.stop(ctx)
	return s.tasks * stepsPerTask, err
}
