package main

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/bench/peers"
	"github.com/tuskqueue/tusk/store/postgres"
)

// singleClients is the number of concurrent clients. Each enqueues one task per call.
const singleClients = 32

// singles measures one task per call: 32 clients enqueue through the library, with a default pool,
// and a worker runs the tasks. Beside it, as many clients call the article's functions, each on its
// own connection.
func singles(ctx context.Context, b *bench) ([]bar, error) {
	tasks := b.tasks
	if tasks == 0 {
		tasks = b.size(15_000, 150_000)
	}
	all, err := compare(ctx, b, "one task a call", []contender{
		{"tusk", singleTasks{tasks}.tusk},
		{"tusk, enqueue alone", singleTasks{tasks}.tuskEnqueue},
		{"article", singleTasks{tasks}.article},
		{"article, produce alone", singleTasks{tasks}.articleProduce},
	})
	if err != nil {
		return nil, err
	}
	var bars []bar
	for _, pair := range [][2]string{{"tusk", "article"}, {"tusk, enqueue alone", "article, produce alone"}} {
		ours, theirs := all[pair[0]], all[pair[1]]
		bars = append(bars,
			atLeast(1, ratios(ours, theirs, speed), "tasks/s, one a call by 32 clients, of the article's functions: "+pair[0],
				"%.0f to %.0f", medianOf(ours, speed), medianOf(theirs, speed)),
			atMost(1, ratios(ours, theirs, server), "server CPU of that: "+pair[0], "%.0f us to %.0f us", medianOf(ours, server),
				medianOf(theirs, server)))
	}
	return bars, nil
}

type singleTasks struct{ tasks int }

// clients calls do for the numbers of all tasks, from concurrent clients.
func (s singleTasks) clients(tasks int, do func(n int) error) error {
	var next atomic.Int64
	var clients errgroup.Group
	for range singleClients {
		clients.Go(func() error {
			for {
				n := int(next.Add(1)) - 1
				if n >= tasks {
					return nil
				}
				if err := do(n); err != nil {
					return err
				}
			}
		})
	}
	return clients.Wait()
}

// stock returns a client with its own default pool.
func (s singleTasks) stock(ctx context.Context, pool *pgxpool.Pool) (*tusk.Client, func(), error) {
	if _, err := fresh(ctx, pool, postgres.Options{}); err != nil {
		return nil, nil, err
	}
	engine, err := postgres.Open(ctx, pool.Config().ConnString())
	if err != nil {
		return nil, nil, err
	}
	client, err := newClient(engine)
	return client, func() { engine.Close() }, err
}

func (s singleTasks) tuskEnqueue(ctx context.Context, pool *pgxpool.Pool, clock *clock) (int, error) {
	client, leave, err := s.stock(ctx, pool)
	if err != nil {
		return 0, err
	}
	defer leave()
	one := func(n int) error {
		_, err := client.Enqueue(ctx, work{n, pad}, nil)
		return err
	}
	if err := s.clients(warmUp*singleClients, one); err != nil {
		return 0, err
	}
	clock.start(ctx)
	err = s.clients(s.tasks, one)
	clock.stop(ctx)
	return s.tasks, err
}

func (s singleTasks) tusk(ctx context.Context, pool *pgxpool.Pool, clock *clock) (int, error) {
	client, leave, err := s.stock(ctx, pool)
	if err != nil {
		return 0, err
	}
	defer leave()
	var handled atomic.Int64
	mux := tusk.NewMux()
	tusk.HandleFunc(mux, func(ctx context.Context, w work) error {
		handled.Add(1)
		return handle(ctx, w)
	})
	worker, err := tusk.NewWorker(client, mux, nil)
	if err != nil {
		return 0, err
	}
	working, stop := context.WithCancel(ctx)
	defer stop()
	var ended errgroup.Group
	ended.Go(func() error { return worker.Run(working) })
	through := func(tasks int) error {
		want := handled.Load() + int64(tasks)
		err := s.clients(tasks, func(n int) error {
			_, err := client.Enqueue(ctx, work{n, pad}, nil)
			return err
		})
		for err == nil && handled.Load() < want && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		for open := 1; err == nil && open > 0; time.Sleep(time.Millisecond) { // until the last outcome is written
			err = pool.QueryRow(ctx, "select count(*) from (select from tusk.lease limit 1) l").Scan(&open)
		}
		return err
	}
	if err := through(warmUp * singleClients); err != nil {
		return 0, err
	}
	clock.start(ctx)
	err = through(s.tasks)
	clock.stop(ctx)
	stop()
	if problem := ended.Wait(); err == nil {
		err = problem
	}
	return s.tasks, err
}

// articlePool returns a pool with a connection for each client.
func (s singleTasks) articlePool(ctx context.Context, pool *pgxpool.Pool) (*pgxpool.Pool, error) {
	config := pool.Config()
	config.MaxConns = singleClients
	own, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if _, err := own.Exec(ctx, peers.Article); err != nil {
		own.Close()
		return nil, err
	}
	return own, nil
}

func (s singleTasks) articleProduce(ctx context.Context, pool *pgxpool.Pool, clock *clock) (int, error) {
	return s.articleCalls(ctx, pool, clock, peerRun{name: "article", batch: 1}.produce)
}

func (s singleTasks) article(ctx context.Context, pool *pgxpool.Pool, clock *clock) (int, error) {
	r := peerRun{name: "article", batch: 1}
	return s.articleCalls(ctx, pool, clock, func(ctx context.Context, own *pgxpool.Pool) error {
		if err := r.produce(ctx, own); err != nil {
			return err
		}
		var handled atomic.Int64
		for handled.Load() == 0 { // another client may have taken it and left none for a moment
			if _, err := r.consume(ctx, own, &handled); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s singleTasks) articleCalls(
	ctx context.Context, pool *pgxpool.Pool, clock *clock, do func(context.Context, *pgxpool.Pool) error,
) (int, error) {
	own, err := s.articlePool(ctx, pool)
	if err != nil {
		return 0, err
	}
	defer own.Close()
	defer own.Exec(context.WithoutCancel(ctx), "drop schema article cascade")
	one := func(int) error { return do(ctx, own) }
	if err := s.clients(warmUp*singleClients, one); err != nil {
		return 0, err
	}
	clock.start(ctx)
	err = s.clients(s.tasks, one)
	clock.stop(ctx)
	return s.tasks, err
}
