package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store/postgres"
)

// slowTasks are tasks that take about a tenth of a second, as many at a time as a worker runs by
// default. They end one by one. The backlog exists before the run.
type slowTasks struct {
	tasks     int // tasks that end during the measurement
	workers   int // each with its own connections, as in processes
	readAhead int // Tusk's setting
}

const (
	slowAtATime = 50
	slowWarm    = 10 * slowAtATime // tasks that end before the measurement
)

// doSlowly takes a tenth of a second, plus or minus half of that.
func doSlowly() { time.Sleep(50*time.Millisecond + rand.N(100*time.Millisecond)) }

// slow compares tasks that end one by one, through the library, with as many loops that take each
// task with SKIP LOCKED.
func slow(ctx context.Context, b *bench) ([]bar, error) {
	tasks := b.tasks
	if tasks == 0 {
		tasks = b.size(2500, 25_000)
	}
	all, err := compare(ctx, b, "a tenth of a second each", []contender{
		{"tusk", slowTasks{tasks, 1, 0}.tusk},
		{"tusk, none ahead", slowTasks{tasks, 1, -1}.tusk},
		{"tusk, fifty workers of one slot", slowTasks{tasks, slowAtATime, -1}.tusk},
		{"skip locked", slowTasks{tasks, 1, 0}.skipLocked},
		{"skip locked, fifty connections", slowTasks{tasks, slowAtATime, 0}.skipLocked},
	})
	if err != nil {
		return nil, err
	}
	var bars []bar
	for _, pair := range [][2]string{{"tusk", "skip locked"}, {"tusk, none ahead", "skip locked"},
		{"tusk, fifty workers of one slot", "skip locked, fifty connections"}} {
		ours, theirs := all[pair[0]], all[pair[1]]
		bars = append(bars, atMost(1, ratios(ours, theirs, server),
			"server CPU of a slow task, 50 at a time, of SKIP LOCKED: "+pair[0], "%.0f us to %.0f us", medianOf(ours, server),
			medianOf(theirs, server)))
	}
	return bars, nil
}

func (l slowTasks) tusk(ctx context.Context, pool *pgxpool.Pool, clock *clock) (int, error) {
	client, err := fresh(ctx, pool, postgres.Options{})
	if err != nil {
		return 0, err
	}
	for left := l.all(); left > 0; left -= 1000 {
		if err := enqueue(ctx, client, "default", min(left, 1000)); err != nil {
			return 0, err
		}
	}
	mux := tusk.NewMux()
	var ended atomic.Int64
	tusk.HandleFunc(mux, func(ctx context.Context, w work) error {
		doSlowly()
		ended.Add(1)
		return handle(ctx, w)
	})
	working, stop := context.WithCancel(ctx)
	defer stop()
	var group errgroup.Group
	for range l.workers {
		if l.workers > 1 {
			engine, err := postgres.Open(ctx, pool.Config().ConnString())
			if err != nil {
				return 0, err
			}
			defer engine.Close()
			if client, err = newClient(engine); err != nil {
				return 0, err
			}
		}
		worker, err := tusk.NewWorker(client, mux,
			&tusk.WorkerConfig{Concurrency: slowAtATime / l.workers, ReadAhead: l.readAhead})
		if err != nil {
			return 0, err
		}
		group.Go(func() error { return worker.Run(working) })
	}
	n, err := l.watch(ctx, &ended, clock)
	stop()
	if problem := group.Wait(); err == nil {
		err = problem
	}
	return n, err
}

func (l slowTasks) skipLocked(ctx context.Context, pool *pgxpool.Pool, clock *clock) (int, error) {
	if _, err := pool.Exec(ctx, oneByOneSchema); err != nil {
		return 0, err
	}
	defer pool.Exec(context.WithoutCancel(ctx), "drop schema onebyone cascade")
	source := pgx.CopyFromSlice(l.all(), func(i int) ([]any, error) {
		return []any{fmt.Sprintf(`{"n":%d,"pad":%q}`, i, pad)}, nil
	})
	if _, err := pool.CopyFrom(ctx, pgx.Identifier{"onebyone", "task"}, []string{"args"}, source); err != nil {
		return 0, err
	}
	var ended atomic.Int64
	loops, working := errgroup.WithContext(ctx)
	enough := make(chan struct{})
	for range slowAtATime {
		loops.Go(func() error {
			on := session(pool)
			if l.workers > 1 {
				conn, err := pgx.ConnectConfig(ctx, pool.Config().ConnConfig.Copy())
				if err != nil {
					return err
				}
				defer conn.Close(context.WithoutCancel(ctx))
				on = conn
			}
			for {
				select {
				case <-enough:
					return nil
				default:
				}
				if err := takeOne(working, on, doSlowly); err != nil {
					return err
				}
				ended.Add(1)
			}
		})
	}
	n, err := l.watch(working, &ended, clock)
	close(enough)
	if problem := loops.Wait(); problem != nil {
		err = problem
	}
	return n, err
}

// all returns more tasks than will have begun when the measurement ends.
func (l slowTasks) all() int { return l.tasks + 2*slowWarm }

// watch runs the clock while so many tasks end, and returns how many ended.
func (l slowTasks) watch(ctx context.Context, ended *atomic.Int64, clock *clock) (int, error) {
	for ended.Load() < slowWarm && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	clock.start(ctx)
	before := ended.Load()
	for ended.Load() < before+int64(l.tasks) && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	clock.stop(ctx)
	return int(ended.Load() - before), ctx.Err()
}
