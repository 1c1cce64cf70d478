// Command riversqlite is the adapter for River on SQLite. It is a separate module because that
// driver is published for older versions of River than the one for PostgreSQL. It runs one plan of
// the harness, which it reads from its input.
package main

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"
	_ "modernc.org/sqlite" // the same driver as for all systems on SQLite

	"github.com/tuskqueue/tusk/bench/harness"
)

func main() {
	find := func(harness.Plan) (harness.Peer, error) { return &peer{}, nil }
	if err := harness.Serve(context.Background(), os.Stdin, os.Stdout, find); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

var quiet = slog.New(slog.DiscardHandler)

type args harness.Args

func (args) Kind() string { return "work" }

type peer struct {
	plan   harness.Plan
	db     *sql.DB
	client *river.Client[*sql.Tx] // it only inserts
}

func (p *peer) Open(ctx context.Context, plan harness.Plan) (err error) {
	p.plan = plan
	p.db, err = sql.Open("sqlite", "file:"+plan.Target+
		"?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)&_pragma=synchronous(full)&_txlock=immediate")
	if err != nil {
		return err
	}
	p.db.SetMaxOpenConns(1) // as River's documentation says for SQLite
	migrator, err := rivermigrate.New(riversqlite.New(p.db), &rivermigrate.Config{Logger: quiet})
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	p.client, err = river.NewClient(riversqlite.New(p.db), &river.Config{Logger: quiet})
	return err
}

func (p *peer) Enqueue(ctx context.Context, tasks []harness.Task) error {
	batch := make([]river.InsertManyParams, len(tasks))
	for i, task := range tasks {
		batch[i].Args = args(task.Args())
		if !task.RunAt.IsZero() {
			batch[i].InsertOpts = &river.InsertOpts{ScheduledAt: task.RunAt}
		}
	}
	_, err := p.client.InsertMany(ctx, batch)
	return err
}

func (p *peer) Work(ctx context.Context, handle func(n int)) error {
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(_ context.Context, job *river.Job[args]) error {
		handle(job.Args.N)
		return nil
	}))
	client, err := river.NewClient(riversqlite.New(p.db), &river.Config{
		Logger: quiet, Workers: workers,
		FetchCooldown: 2 * time.Millisecond, FetchPollInterval: 20 * time.Millisecond,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: p.plan.Workers}},
	})
	if err != nil {
		return err
	}
	if err := client.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	<-ctx.Done()
	return client.Stop(context.WithoutCancel(ctx))
}

func (p *peer) Left(ctx context.Context) (n int, err error) {
	const unfinished = "select count(*) from river_job where state in ('available', 'running', 'retryable', " +
		"'scheduled', 'pending')"
	err = p.db.QueryRowContext(ctx, unfinished).Scan(&n)
	return n, err
}

func (p *peer) Close() error { return p.db.Close() }
