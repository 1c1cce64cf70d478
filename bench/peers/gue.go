package peers

import (
	"context"
	_ "embed"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	guequeue "github.com/vgarvardt/gue/v5"
	"github.com/vgarvardt/gue/v5/adapter/pgxv5"

	"github.com/tuskqueue/tusk/bench/harness"
)

var gue = []Contender{
	{Name: "gue", Server: Postgres, Version: module("github.com/vgarvardt/gue/v5"), New: newGue,
		Cannot: []string{"tenants"},
		Settings: "EnqueueBatch; a pool of as many workers as the plan says, a connection for each; poll interval 20 ms " +
			"(default 5 s)"},
	{Name: "gue", Variant: "16 workers", Aside: true, Server: Postgres, Version: module("github.com/vgarvardt/gue/v5"),
		New: newGue, Cannot: []string{"tenants", "work", "long"},
		Settings: "the same with 16 workers"},
}

func newGue(variant string) harness.Peer { return &guePeer{few: variant != ""} }

type guePeer struct {
	few    bool
	plan   harness.Plan
	pool   *pgxpool.Pool
	client *guequeue.Client
}

// gueSchema is the table that gue's users are told to create.
//
//go:embed gue.sql
var gueSchema string

func (g *guePeer) Open(ctx context.Context, p harness.Plan) (err error) {
	g.plan = p
	if g.few {
		g.plan.Workers = 16
	}
	if g.pool, err = openPool(ctx, p.Target, g.plan.Workers+4); err != nil {
		return err
	}
	if _, err := g.pool.Exec(ctx, gueSchema); err != nil {
		return err
	}
	g.client, err = guequeue.NewClient(pgxv5.NewConnPool(g.pool))
	return err
}

func (g *guePeer) Enqueue(ctx context.Context, tasks []harness.Task) error {
	jobs := make([]*guequeue.Job, len(tasks))
	for i, task := range tasks {
		jobs[i] = &guequeue.Job{Type: "work", Args: task.JSON(), RunAt: task.RunAt}
	}
	return g.client.EnqueueBatch(ctx, jobs)
}

func (g *guePeer) Work(ctx context.Context, handle func(n int)) error {
	work := guequeue.WorkMap{"work": func(_ context.Context, j *guequeue.Job) error {
		n, err := harness.Number(j.Args)
		if err == nil {
			handle(n)
		}
		return err
	}}
	pool, err := guequeue.NewWorkerPool(g.client, work, g.plan.Workers, guequeue.WithPoolPollInterval(20*time.Millisecond),
		guequeue.WithPoolGracefulShutdown(nil))
	if err != nil {
		return err
	}
	return pool.Run(ctx)
}

func (g *guePeer) Left(ctx context.Context) (int, error) {
	return count(ctx, g.pool, "select count(*) from gue_jobs")
}

func (g *guePeer) Close() error { g.pool.Close(); return nil }
