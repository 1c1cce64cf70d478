package main

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store/postgres"
)

// compareCopy compares enqueuing in batches of MaxBatch with the limit: a bare COPY of the same
// rows into a bare copy of the log, with the same indexes. Both include producing the args, and
// each stores a batch before it is measured.
func compareCopy(ctx context.Context, b *bench) ([]bar, error) {
	tasks := b.tasks
	if tasks == 0 {
		tasks = b.size(400_000, 1_000_000)
	}
	var rows []logRow
	all, err := compare(ctx, b, "enqueue", []contender{
		{"tusk", func(ctx context.Context, pool *pgxpool.Pool, clock *clock) (n int, err error) {
			client, err := fresh(ctx, pool, postgres.Options{})
			if err != nil {
				return 0, err
			}
			err = byTheClock(ctx, clock, tasks, func() (int, error) {
				return tusk.MaxBatch, enqueue(ctx, client, "default", tusk.MaxBatch)
			})
			if err == nil {
				rows, err = rowsOfLog(ctx, pool)
			}
			return tasks, err
		}},
		{"bare COPY", func(ctx context.Context, pool *pgxpool.Pool, clock *clock) (int, error) {
			_, err := pool.Exec(ctx, `
				drop table if exists tusk.bare;
				create table tusk.bare
					(like tusk.log including defaults including indexes including storage including constraints)`)
			if err != nil {
				return 0, err
			}
			rest := rows
			return tasks, byTheClock(ctx, clock, tasks, func() (n int, err error) {
				rest, n, err = bareCopy(ctx, pool, rest)
				return n, err
			})
		}},
	})
	if err != nil {
		return nil, err
	}
	return []bar{
		atLeast(0.8, ratios(all["tusk"], all["bare COPY"], speed), "enqueueing, of a bare COPY of the same rows",
			"%.0f to %.0f tasks/s", medianOf(all["tusk"], speed), medianOf(all["bare COPY"], speed)),
	}, nil
}

// byTheClock stores one batch, and then measures storing so many tasks.
func byTheClock(ctx context.Context, clock *clock, tasks int, batch func() (int, error)) error {
	if _, err := batch(); err != nil {
		return err
	}
	clock.start(ctx)
	defer clock.stop(ctx)
	for stored := 0; stored < tasks; {
		n, err := batch()
		if err != nil || n == 0 {
			return err
		}
		stored += n
	}
	return nil
}

// rowsOfLog reads back the enqueued rows.
func rowsOfLog(ctx context.Context, pool *pgxpool.Pool) (all []logRow, err error) {
	rows, err := pool.Query(ctx, "select id, lane, kind, args, packed from tusk.log")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var r logRow
		if err := rows.Scan(&r.id, &r.lane, &r.kind, &r.args, &r.packed); err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, rows.Err()
}

// bareCopy copies a batch of rows. It returns the remaining rows and the number of copied tasks.
func bareCopy(ctx context.Context, pool *pgxpool.Pool, rows []logRow) (rest []logRow, tasks int, err error) {
	source := pgx.CopyFromFunc(func() ([]any, error) {
		if tasks >= tusk.MaxBatch || len(rows) == 0 {
			return nil, nil
		}
		r := &rows[0]
		rows = rows[1:]
		for range max(1, len(r.packed)) {
			if _, err := json.Marshal(work{tasks, pad}); err != nil {
				return nil, err
			}
			tasks++
		}
		return []any{r.id, r.lane, r.kind, r.args, r.packed}, nil
	})
	_, err = pool.CopyFrom(ctx, pgx.Identifier{"tusk", "bare"}, []string{"id", "lane", "kind", "args", "packed"}, source)
	return rows, tasks, err
}

// logRow is a row of the log: a task, or a pack.
type logRow struct {
	id     [16]byte
	lane   int64
	kind   string
	args   []byte
	packed pgtype.FlatArray[[]byte]
}
