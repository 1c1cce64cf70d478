package peers

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	riverqueue "github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/tuskqueue/tusk/bench/harness"
)

// riverFast are River's settings for speed; the fetch intervals are those of its
// own benchmark, far below its defaults.
const riverFast = "FetchCooldown 2 ms, FetchPollInterval 20 ms (as its own benchmark; its defaults are 100 ms and 1 s), 20 connections"

var river = []Contender{
	{Name: "River", Server: Postgres, Version: module("github.com/riverqueue/river"), New: newRiver,
		Settings: "InsertMany; MaxWorkers as the workers; " + riverFast, Cannot: []string{"tenants"}},
	{Name: "River", Variant: "2,000 workers", Aside: true, Server: Postgres, Version: module("github.com/riverqueue/river"), New: newRiver,
		Settings: "InsertManyFast (COPY); MaxWorkers 2,000, as its own benchmark; " + riverFast, Cannot: []string{"tenants", "work", "long"}},
}

func newRiver(variant string) harness.Peer { return &riverPeer{best: variant != ""} }

type riverPeer struct {
	best   bool
	plan   harness.Plan
	pool   *pgxpool.Pool
	client *riverqueue.Client[pgx.Tx] // that only inserts
}

func (r *riverPeer) Open(ctx context.Context, p harness.Plan) (err error) {
	r.plan = p
	if r.pool, err = openPool(ctx, p.Target, 20); err != nil {
		return err
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(r.pool), &rivermigrate.Config{Logger: quiet})
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	r.client, err = riverqueue.NewClient(riverpgxv5.New(r.pool), &riverqueue.Config{Logger: quiet})
	return err
}

type riverArgs harness.Args

func (riverArgs) Kind() string { return "work" }

func riverBatch(tasks []harness.Task) []riverqueue.InsertManyParams {
	batch := make([]riverqueue.InsertManyParams, len(tasks))
	for i, task := range tasks {
		batch[i].Args = riverArgs(task.Args())
		if !task.RunAt.IsZero() {
			batch[i].InsertOpts = &riverqueue.InsertOpts{ScheduledAt: task.RunAt}
		}
	}
	return batch
}

func (r *riverPeer) Enqueue(ctx context.Context, tasks []harness.Task) (err error) {
	if r.best {
		_, err = r.client.InsertManyFast(ctx, riverBatch(tasks))
	} else {
		_, err = r.client.InsertMany(ctx, riverBatch(tasks))
	}
	return err
}

func riverConfig(workers int, handle func(n int)) *riverqueue.Config {
	registered := riverqueue.NewWorkers()
	riverqueue.AddWorker(registered, riverqueue.WorkFunc(func(_ context.Context, job *riverqueue.Job[riverArgs]) error {
		handle(job.Args.N)
		return nil
	}))
	return &riverqueue.Config{
		Logger: quiet, Workers: registered,
		FetchCooldown: 2 * time.Millisecond, FetchPollInterval: 20 * time.Millisecond,
		Queues: map[string]riverqueue.QueueConfig{riverqueue.QueueDefault: {MaxWorkers: workers}},
	}
}

func (r *riverPeer) Work(ctx context.Context, handle func(n int)) error {
	workers := r.plan.Workers
	if r.best {
		workers = 2000
	}
	client, err := riverqueue.NewClient(riverpgxv5.New(r.pool), riverConfig(workers, handle))
	if err != nil {
		return err
	}
	if err := client.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	<-ctx.Done()
	return client.Stop(context.WithoutCancel(ctx))
}

func (r *riverPeer) Left(ctx context.Context) (int, error) {
	return count(ctx, r.pool, "select count(*) from river_job where state in ('available', 'running', 'retryable', 'scheduled', 'pending')")
}

func (r *riverPeer) Close() error { r.pool.Close(); return nil }
