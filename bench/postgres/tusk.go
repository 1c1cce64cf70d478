package main

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store/postgres"
)

// work is the args of a task for all contenders: 80 bytes of JSON.
type work struct {
	N   int    `json:"n"`
	Pad string `json:"pad"`
}

func (work) Kind() string { return "work" }

const pad = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"

// handle is the handler of all tasks.
func handle(context.Context, work) error { return nil }

// fresh makes an engine with an empty schema and default settings.
func fresh(ctx context.Context, pool *pgxpool.Pool, o postgres.Options) (*tusk.Client, error) {
	if _, err := pool.Exec(ctx, "drop schema if exists tusk cascade"); err != nil {
		return nil, err
	}
	engine, err := postgres.New(ctx, pool, o)
	if err != nil {
		return nil, err
	}
	if _, err := engine.Migrate(ctx, -1); err != nil {
		return nil, err
	}
	return newClient(engine)
}

func newClient(engine *postgres.Store) (*tusk.Client, error) {
	return tusk.NewClient(engine, &tusk.ClientConfig{Logger: discard})
}

var discard = slog.New(slog.DiscardHandler)

// tuskRun produces through the client and consumes through workers, with real leases and real
// finishes. It ends after so many tasks or after a time.
type tuskRun struct {
	tasks, batch int
	lasts        time.Duration // 0 means until all tasks are done
	held         bool          // beside an open transaction
	watch        *watch        // nil means without metrics and traces
}

func (r tuskRun) run(ctx context.Context, pool *pgxpool.Pool, clock *clock) (int, error) {
	client, err := fresh(ctx, pool, postgres.Options{})
	if err != nil {
		return 0, err
	}
	var tracer tusk.Tracer
	if r.watch != nil {
		if client, err = tusk.NewClient(r.watch.wrap(client.Store()), &tusk.ClientConfig{Logger: discard}); err != nil {
			return 0, err
		}
		r.watch.begin(client)
		tracer = r.watch.tracer
	}
	if r.held {
		release, err := hold(ctx, pool)
		if err != nil {
			return 0, err
		}
		defer release()
	}
	var ends time.Time
	var made, handled, stored atomic.Int64
	enough := func() bool {
		if r.lasts > 0 {
			return time.Now().After(ends)
		}
		return made.Add(int64(r.batch)) > int64(r.tasks)
	}
	mux := tusk.NewMux()
	tusk.HandleFunc(mux, func(ctx context.Context, w work) error {
		handled.Add(1)
		return handle(ctx, w)
	})
	working, stop := context.WithCancel(ctx)
	defer stop()
	var workers, producers errgroup.Group
	stopped := func(err error) (int, error) {
		stop() // and write the last outcomes
		return int(handled.Load()), errors.Join(err, workers.Wait())
	}
	for range hands {
		worker, err := tusk.NewWorker(client, mux, &tusk.WorkerConfig{Concurrency: 16, ReadAhead: r.batch, Tracer: tracer})
		if err != nil {
			return stopped(err)
		}
		workers.Go(func() error { return worker.Run(working) })
	}
	for range warmUp { // connections, plans
		if err := enqueue(ctx, client, "default", r.batch); err != nil {
			return stopped(err)
		}
	}
	for handled.Load() < int64(warmUp*r.batch) && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	handled.Store(0)
	clock.start(ctx)
	ends = time.Now().Add(r.lasts)
	for range hands {
		producers.Go(func() error {
			for !enough() {
				for stored.Load()-handled.Load() > mostWaiting*int64(r.batch) {
					time.Sleep(time.Millisecond)
				}
				if err := enqueue(ctx, client, "default", r.batch); err != nil {
					return err
				}
				stored.Add(int64(r.batch))
			}
			return nil
		})
	}
	err = producers.Wait()
	for err == nil && handled.Load() < stored.Load() && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	for open := 1; err == nil && open > 0; time.Sleep(time.Millisecond) { // until the last outcome is written
		err = pool.QueryRow(ctx, "select count(*) from (select from tusk.lease limit 1) l").Scan(&open)
	}
	clock.stop(ctx)
	return stopped(err)
}

// warmUp is the number of batches before the measurement.
const warmUp = 10

// mostWaiting is how many batches may wait before producers pause, since an endless backlog is of
// no use.
const mostWaiting = 100

// hands is the number of producers, and of consumers.
const hands = 2

func enqueue(ctx context.Context, client *tusk.Client, queue string, n int) error {
	tasks := make([]tusk.NewTask, n)
	o := &tusk.Options{Queue: queue}
	for i := range tasks {
		tasks[i] = tusk.NewTask{Args: work{i, pad}, Options: o}
	}
	_, err := client.EnqueueMany(ctx, tasks)
	return err
}
