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

// small is claim and finish of one task at a time, each awaited, beside one-by-one
// SKIP LOCKED. Producing is not measured.
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
		atMost(1, ratios(all["tusk"], all["skip locked"], server), "server CPU to claim and finish one task, of one-by-one SKIP LOCKED", "%.0f us to %.0f us",
			medianOf(all["tusk"], server), medianOf(all["skip locked"], server)),
		atLeast(1, ratios(all["tusk"], all["skip locked"], speed), "tasks/s one by one, of SKIP LOCKED", "%.0f to %.0f",
			medianOf(all["tusk"], speed), medianOf(all["skip locked"], speed)),
		atLeast(1, ratios(slow["tusk"], slow["skip locked"], speed), "tasks/s one by one, of SKIP LOCKED, where the disk takes 2 ms", "%.0f to %.0f",
			medianOf(slow["tusk"], speed), medianOf(slow["skip locked"], speed)),
	}, nil
}

func oneByOne(ctx context.Context, b *bench, what string, tasks int) (map[string][]figure, error) {
	return compare(ctx, b, what, []contender{
		{"tusk", func(ctx context.Context, pool *pgxpool.Pool, clock *clock) (int, error) {
			return tasks, tuskOneByOne(ctx, b, tasks, clock)
		}},
		{"skip locked", func(ctx context.Context, pool *pgxpool.Pool, clock *clock) (int, error) {
			return tasks, skipLockedOneByOne(ctx, pool, tasks, clock)
		}},
	})
}

// onSlowDisk is the same on sessions that wait for 2 ms whenever they have to wait for
// the disk: those of virtual machines often say sooner that they have written.
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

func tuskOneByOne(ctx context.Context, b *bench, tasks int, clock *clock) error {
	c, err := newClaims(ctx, b)
	if err != nil {
		return err
	}
	defer c.conn.Close(ctx)
	if err := c.fill(ctx, tasks); err != nil {
		return err
	}
	clock.start(ctx)
	defer clock.stop(ctx)
	for range tasks {
		got, err := c.engine.Claim(ctx, store.ClaimRequest{Worker: c.worker, Queues: []string{"default"}, Limit: 1, Token: store.NewToken()})
		if err != nil {
			return err
		}
		if len(got) != 1 {
			return fmt.Errorf("claimed %d tasks, not one", len(got))
		}
		if _, err := c.engine.Finish(ctx, []store.Outcome{{Task: &got[0], State: store.Completed, Attempt: got[0].Attempt}}); err != nil {
			return err
		}
	}
	return nil
}

func skipLockedOneByOne(ctx context.Context, pool *pgxpool.Pool, tasks int, clock *clock) error {
	if _, err := pool.Exec(ctx, oneByOneSchema); err != nil {
		return err
	}
	defer pool.Exec(context.WithoutCancel(ctx), "drop schema onebyone cascade")
	source := pgx.CopyFromSlice(tasks, func(i int) ([]any, error) { return []any{fmt.Sprintf(`{"n":%d,"pad":%q}`, i, pad)}, nil })
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

// session is a connection, or a pool of them.
type session interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// takeOne claims a task, does it, and finishes it.
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
