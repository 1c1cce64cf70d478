package main

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store/postgres"
)

// compareCopy is enqueueing in batches of MaxBatch against the limit: a bare COPY
// of the same rows into a bare copy of the log, with the same indexes.
func compareCopy(ctx context.Context, b *bench) ([]bar, error) {
	tasks := b.tasks
	if tasks == 0 {
		tasks = b.size(200_000, 1_000_000)
	}
	var all, enqueued []float64
	for range b.pairs {
		client, err := fresh(ctx, b.pool, postgres.Options{})
		if err != nil {
			return nil, err
		}
		begun := time.Now()
		for range tasks / tusk.MaxBatch {
			if err := enqueue(ctx, client, "default", tusk.MaxBatch); err != nil {
				return nil, err
			}
		}
		took := time.Since(begun)
		copied, err := bareCopy(ctx, b.pool, tasks)
		if err != nil {
			return nil, err
		}
		all, enqueued = append(all, copied.Seconds()/took.Seconds()), append(enqueued, float64(tasks)/took.Seconds())
	}
	return []bar{atLeast(0.8, median(all), "enqueueing, of a bare COPY of the same rows", "%.0f tasks/s", median(enqueued))}, nil
}

func bareCopy(ctx context.Context, pool *pgxpool.Pool, tasks int) (time.Duration, error) {
	// The rows that were enqueued, read back outside the measured time.
	rows, err := pool.Query(ctx, "select id, lane, kind, args, packed from tusk.log")
	if err != nil {
		return 0, err
	}
	var copies []logRow
	for rows.Next() {
		var r logRow
		if err := rows.Scan(&r.id, &r.lane, &r.kind, &r.args, &r.packed); err != nil {
			return 0, err
		}
		copies = append(copies, r)
	}
	if err := rows.Err(); err != nil {
		return 0, err
	}
	_, err = pool.Exec(ctx, `
		drop table if exists tusk.bare;
		create table tusk.bare (like tusk.log including defaults including indexes including storage including constraints)`)
	if err != nil {
		return 0, err
	}
	begun := time.Now()
	for at, copied := 0, 0; copied < tasks; {
		n := 0 // tasks of this batch
		source := pgx.CopyFromFunc(func() ([]any, error) {
			if n >= tusk.MaxBatch || at == len(copies) {
				return nil, nil
			}
			r := &copies[at]
			at++
			for range max(1, len(r.packed)) {
				// Producing the args is part of both.
				if _, err := json.Marshal(work{copied + n, pad}); err != nil {
					return nil, err
				}
				n++
			}
			return []any{r.id, r.lane, r.kind, r.args, r.packed}, nil
		})
		if _, err := pool.CopyFrom(ctx, pgx.Identifier{"tusk", "bare"}, []string{"id", "lane", "kind", "args", "packed"}, source); err != nil {
			return 0, err
		}
		copied += n
	}
	return time.Since(begun), nil
}

// logRow is a row of the log: a task, or a pack.
type logRow struct {
	id     [16]byte
	lane   int64
	kind   string
	args   []byte
	packed pgtype.FlatArray[[]byte]
}
