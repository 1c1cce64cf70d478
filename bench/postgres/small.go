package main

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk/store"
)

//go:embed onebyone.sql
var oneByOneSchema string

// small measures claiming and finishing one task at a time, each awaited, as a worker with one slot
// does, beside SKIP LOCKED one by one. Producing is not measured.
func small(ctx context.Context, b *bench) ([]bar, error) {
	tasks := b.tasks
	if tasks == 0 {
		tasks = b.size(3000, 30_000)
	}
	all, err := oneByOne(ctx, b, "one by one", tasks)
	if err != nil {
		return nil, err
	}
	onDisk, err := onSlowDisk(ctx, b)
	if err != nil {
		return nil, err
	}
	defer onDisk.pool.Close()
	slow, err := oneByOne(ctx, onDisk, "one by one, disk of 2 ms", tasks/5)
	if err != nil {
		return nil, err
	}
	return []bar{
		atMost(1, ratios(all["tusk"], all["skip locked"], server),
			"server CPU to claim and finish one task, of one-by-one SKIP LOCKED", "%.0f us to %.0f us",
			medianOf(all["tusk"], server), medianOf(all["skip locked"], server)), atMost(1,
			ratios(all["tusk, something beside"], all["skip locked"], server),
			"the same where a task was ever finished in a user's transaction, or ever needed another", "%.0f us to %.0f us",
			medianOf(all["tusk, something beside"], server), medianOf(all["skip locked"], server)), atLeast(1,
			ratios(all["tusk"], all["skip locked"], speed), "tasks/s one by one, of SKIP LOCKED", "%.0f to %.0f",
			medianOf(all["tusk"], speed), medianOf(all["skip locked"], speed)), atLeast(1,
			ratios(slow["tusk"], slow["skip locked"], speed), "tasks/s one by one, of SKIP LOCKED, where the disk takes 2 ms",
			"%.0f to %.0f", medianOf(slow["tusk"], speed), medianOf(slow["skip locked"], speed)),
	}, nil
}

func oneByOne(ctx context.Context, b *bench, what string, tasks int) (map[string][]figure, error) {
	return compare(ctx, b, what, []contender{
		{"tusk", func(ctx context.Context, pool *pgxpool.Pool, clock *clock) (int, error) {
			return tasks, tuskOneByOne(ctx, b, tasks, false, clock)
		}},
		{"tusk, something beside", func(ctx context.Context, pool *pgxpool.Pool, clock *clock) (int, error) {
			return tasks, tuskOneByOne(ctx, b, tasks, true, clock)
		}},
		{"skip locked", func(ctx context.Context, pool *pgxpool.Pool, clock *clock) (int, error) {
			return tasks, skipLockedOneByOne(ctx, pool, tasks, clock)
		}},
	})
}

// onSlowDisk returns a bench whose sessions wait for 2 ms whenever they have to wait for the disk.
// The disks of virtual machines often report too early that they have written.
func onSlowDisk(ctx context.Context, b *bench) (*bench, error) {
	config := b.pool.Config()
	config.ConnConfig.RuntimeParams["commit_delay"] = "2000"
	config.ConnConfig.RuntimeParams["commit_siblings"] = "0"
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	slow := *b
	slow.pool = pool
	return &slow, nil
}

// tuskOneByOne finishes each task when it claims the next one. beside marks the schema as having, or
// having had, something beside leases, so that the engine has to look for it.
func tuskOneByOne(ctx context.Context, b *bench, tasks int, beside bool, clock *clock) error {
	c, err := newClaims(ctx, b)
	if err != nil {
		return err
	}
	defer c.conn.Close(ctx)
	if err := c.fill(ctx, tasks); err != nil {
		return err
	}
	if beside {
		if _, err := c.conn.Exec(ctx, "select nextval('tusk.beside')"); err != nil {
			return err
		}
	}
	ask := func() store.ClaimRequest {
		return store.ClaimRequest{Worker: c.worker, Queues: []string{"default"}, Limit: 1, Token: store.NewToken()}
	}
	clock.start(ctx)
	defer clock.stop(ctx)
	got, err := c.engine.Claim(ctx, ask())
	for i := range tasks {
		if err != nil || len(got) != 1 {
			return fmt.Errorf("claimed %d tasks, not one: %v", len(got), err)
		}
		done := store.Outcome{Task: &got[0], State: store.Completed, Attempt: got[0].Attempt}
		if i == tasks-1 {
			_, err := c.engine.Finish(ctx, []store.Outcome{done})
			return err
		}
		x := c.engine.Exchange(ctx, done, ask())
		if x.FinishErr != nil || x.Lost {
			return fmt.Errorf("finish: lost: %v, error: %v", x.Lost, x.FinishErr)
		}
		got, err = x.Tasks, x.ClaimErr
	}
	return nil
}

func skipLockedOneByOne(ctx context.Context, pool *pgxpool.Pool, tasks int, clock *clock) error {
	if _, err := pool.Exec(ctx, oneByOneSchema); err != nil {
		return err
	}
	defer pool.Exec(context.WithoutCancel(ctx), "drop schema onebyone cascade")
	source := pgx.CopyFromSlice(tasks, func(i int) ([]any, error) {
		return []any{fmt.Sprintf(`{"n":%d,"pad":%q}`, i, pad)}, nil
	})
	if _, err := pool.CopyFrom(ctx, pgx.Identifier{"onebyone", "task"}, []string{"args"}, source); err != nil {
		return err
	}
	clock.start(ctx)
	defer clock.stop(ctx)
	for range tasks {
		if err := takeOne(ctx, pool, func() {}); err != nil {
			return err
		}
	}
	return nil
}

// session is a connection or a pool.
type session interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// takeOne claims a task, runs it and finishes it.
func takeOne(ctx context.Context, on session, do func()) error {
	var id int64
	var args string
	if err := on.QueryRow(ctx, claimOne).Scan(&id, &args); err != nil {
		return err
	}
	do()
	_, err := on.Exec(ctx, "update onebyone.task set status = 2, ended = clock_timestamp() where id = $1", id)
	return err
}

const claimOne = `
	update onebyone.task set status = 1, attempt = attempt + 1, began = clock_timestamp()
	where id = (select id from onebyone.task where status = 0 order by priority, id limit 1 for update skip locked)
	returning id, args`
