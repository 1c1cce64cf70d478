package main

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
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
	rows, err := pool.Query(ctx, "select id, lane, kind, args from tusk.task limit $1", tasks)
	if err != nil {
		return 0, err
	}
	var copies [][]any
	for rows.Next() {
		values, err := rows.Values()
		if err != nil {
			return 0, err
		}
		copies = append(copies, values)
	}
	if err := rows.Err(); err != nil {
		return 0, err
	}
	_, err = pool.Exec(ctx, `
		drop table if exists tusk.bare;
		create table tusk.bare (like tusk.task including defaults including indexes including storage including constraints)`)
	if err != nil {
		return 0, err
	}
	begun := time.Now()
	for at := 0; at < len(copies); at += tusk.MaxBatch {
		part := copies[at:min(at+tusk.MaxBatch, len(copies))]
		source := pgx.CopyFromSlice(len(part), func(i int) ([]any, error) {
			// Producing the args is part of both.
			if _, err := json.Marshal(work{at + i, pad}); err != nil {
				return nil, err
			}
			return part[i], nil
		})
		if _, err := pool.CopyFrom(ctx, pgx.Identifier{"tusk", "bare"}, []string{"id", "lane", "kind", "args"}, source); err != nil {
			return 0, err
		}
	}
	return time.Since(begun), nil
}
