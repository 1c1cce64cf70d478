package main

import (
	"context"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store/postgres"
)

// fresh makes an engine with an empty schema, as stock as it comes.
func fresh(ctx context.Context, pool *pgxpool.Pool) (*tusk.Client, error) {
	if _, err := pool.Exec(ctx, "drop schema if exists tusk cascade"); err != nil {
		return nil, err
	}
	engine, err := postgres.New(pool, postgres.Options{})
	if err != nil {
		return nil, err
	}
	if _, err := engine.Migrate(ctx, -1); err != nil {
		return nil, err
	}
	return tusk.NewClient(engine, &tusk.ClientConfig{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
}

// runTusk produces through the client and consumes through workers: real leases,
// real finishes.
func runTusk(ctx context.Context, pool *pgxpool.Pool, s setting) (time.Duration, error) {
	client, err := fresh(ctx, pool)
	if err != nil {
		return 0, err
	}
	var handled atomic.Int64
	done := make(chan struct{})
	mux := tusk.NewMux()
	tusk.HandleFunc(mux, func(ctx context.Context, w work) error {
		if handled.Add(1) == int64(s.tasks) {
			close(done)
		}
		return handle(ctx, w)
	})
	working, stop := context.WithCancel(ctx)
	defer stop()
	var workers, producers errgroup.Group
	for range s.consumers {
		worker, err := tusk.NewWorker(client, mux, &tusk.WorkerConfig{Concurrency: 16, ReadAhead: s.batch})
		if err != nil {
			return 0, err
		}
		workers.Go(func() error { return worker.Run(working) })
	}
	begun := time.Now()
	for p := range s.producers {
		producers.Go(func() error { return tuskProducer(ctx, client, s, p) })
	}
	if err := producers.Wait(); err != nil {
		return 0, err
	}
	select {
	case <-done:
	case <-ctx.Done():
	}
	stop() // and write the last outcomes
	err = workers.Wait()
	return time.Since(begun), err
}

func tuskProducer(ctx context.Context, client *tusk.Client, s setting, p int) error {
	share := s.tasks / s.producers
	if p == 0 {
		share += s.tasks % s.producers
	}
	for at := 0; at < share; at += s.batch {
		tasks := make([]tusk.NewTask, min(s.batch, share-at))
		for i := range tasks {
			tasks[i].Args = work{at + i, s.payload}
		}
		if _, err := client.EnqueueMany(ctx, tasks); err != nil {
			return err
		}
	}
	return nil
}
