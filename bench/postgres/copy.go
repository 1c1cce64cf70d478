package main

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk"
)

// compareCopy is enqueueing in batches of MaxBatch against the limit: a bare COPY
// of the same rows into a bare copy of the log, with the same indexes. It returns
// the median of the ratios of speed.
func compareCopy(ctx context.Context, pool *pgxpool.Pool, tasks, rounds int) (float64, error) {
	var ratios []float64
	for range rounds {
		client, err := fresh(ctx, pool)
		if err != nil {
			return 0, err
		}
		begun := time.Now()
		if err := tuskProducer(ctx, client, setting{tasks: tasks, producers: 1, batch: tusk.MaxBatch, payload: pad}, 0); err != nil {
			return 0, err
		}
		enqueue := time.Since(begun)
		copied, err := bareCopy(ctx, pool, tasks)
		if err != nil {
			return 0, err
		}
		ratios = append(ratios, copied.Seconds()/enqueue.Seconds())
	}
	return median(ratios), nil
}

const pad = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"

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
