package peers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	riverqueue "github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/tuskqueue/tusk/bench/harness"
)

// riverFast describes River's settings for speed. The fetch intervals are those of its own
// benchmark, far below its defaults.
const riverFast = "FetchCooldown 2 ms, FetchPollInterval 20 ms (as its own benchmark; its defaults are 100 ms and 1 " +
	"s), 20 connections"

var river = []Contender{
	{Name: "River", Server: Postgres, Version: module("github.com/riverqueue/river"), New: newRiver,
		Settings: "InsertMany; MaxWorkers as the workers; " + riverFast, Cannot: []string{"tenants"}},
	{Name: "River", Variant: "2,000 workers", Aside: true, Server: Postgres,
		Version: module("github.com/riverqueue/river"), New: newRiver,
		Settings: "InsertManyFast (COPY); MaxWorkers 2,000, as its own benchmark; " + riverFast,
		Cannot:   []string{"tenants", "work", "long"}},
}

// riverEveryday is River with its default fetch intervals, which determine what an idle process
// costs.
var riverEveryday = Contender{Name: "River", Variant: riverDefaults, Server: Postgres, Version: river[0].Version,
	New: newRiver, Settings: "its defaults: FetchCooldown 100 ms, FetchPollInterval 1 s"}

func newRiver(variant string) harness.Peer {
	return &riverPeer{best: variant == "2,000 workers", defaults: variant == riverDefaults}
}

const riverDefaults = "its defaults"

type riverPeer struct {
	best     bool
	defaults bool // use the default fetch intervals
	plan     harness.Plan
	pool     *pgxpool.Pool
	client   *riverqueue.Client[pgx.Tx] // it only inserts
}

func (r *riverPeer) Open(ctx context.Context, p harness.Plan) (err error) {
	r.plan = p
	if r.pool, err = openPool(ctx, p.Target, riverConnections); err != nil {
		return err
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(r.pool), &rivermigrate.Config{Logger: quiet})
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	if p.Shape == harness.InTx {
		if _, err := r.pool.Exec(ctx, usersTable); err != nil {
			return err
		}
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

// enqueueShaped stores a task of an everyday run.
func (r *riverPeer) enqueueShaped(ctx context.Context, task harness.Task) error {
	args, o := riverArgs(task.Args()), &riverqueue.InsertOpts{}
	switch task.Shape {
	case harness.InTx:
		tx, err := r.pool.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback(ctx)
		if _, err := tx.Exec(ctx, usersRow, task.N); err != nil {
			return err
		}
		if _, err := r.client.InsertTx(ctx, tx, args, nil); err != nil {
			return err
		}
		return tx.Commit(ctx)
	case harness.Unique:
		o.UniqueOpts.ByArgs = true
	case harness.Delayed:
		o.ScheduledAt = time.Now().Add(harness.Delay)
	}
	_, err := r.client.Insert(ctx, args, o)
	return err
}

func (r *riverPeer) Enqueue(ctx context.Context, tasks []harness.Task) (err error) {
	if r.plan.Shape != "" {
		return r.enqueueShaped(ctx, tasks[0])
	}
	if r.best {
		_, err = r.client.InsertManyFast(ctx, riverBatch(tasks))
	} else {
		_, err = r.client.InsertMany(ctx, riverBatch(tasks))
	}
	return err
}

func (r *riverPeer) config(workers int, handle func(n int)) *riverqueue.Config {
	registered := riverqueue.NewWorkers()
	riverqueue.AddWorker(registered, riverqueue.WorkFunc(func(_ context.Context, job *riverqueue.Job[riverArgs]) error {
		handle(job.Args.N)
		if r.plan.Shape == harness.Retried && job.Attempt == 1 {
			return errOnce
		}
		return nil
	}))
	config := &riverqueue.Config{
		Logger: quiet, Workers: registered,
		Queues: map[string]riverqueue.QueueConfig{riverqueue.QueueDefault: {MaxWorkers: workers}},
	}
	if !r.defaults {
		config.FetchCooldown, config.FetchPollInterval = 2*time.Millisecond, 20*time.Millisecond
	}
	return config
}

func (r *riverPeer) Work(ctx context.Context, handle func(n int)) error {
	workers := r.plan.Workers
	if r.best {
		workers = 2000
	}
	var clients []*riverqueue.Client[pgx.Tx]
	for i := range max(r.plan.Processes, 1) {
		pool := r.pool
		if i > 0 {
			other, err := openPool(ctx, r.plan.Target, riverConnections)
			if err != nil {
				return err
			}
			defer other.Close()
			pool = other
		}
		config := r.config(workers, handle)
		config.ID = fmt.Sprintf("process-%d", i)
		client, err := riverqueue.NewClient(riverpgxv5.New(pool), config)
		if err != nil {
			return err
		}
		if err := client.Start(context.WithoutCancel(ctx)); err != nil {
			return err
		}
		clients = append(clients, client)
	}
	<-ctx.Done()
	var all error
	for _, client := range clients {
		all = errors.Join(all, client.Stop(context.WithoutCancel(ctx)))
	}
	return all
}

const riverConnections = 20

func (r *riverPeer) Left(ctx context.Context) (int, error) {
	return count(ctx, r.pool,
		"select count(*) from river_job where state in ('available', 'running', 'retryable', 'scheduled', 'pending')")
}

func (r *riverPeer) Close() error { r.pool.Close(); return nil }
