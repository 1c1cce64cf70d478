package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/tuskqueue/tusk/bench/peers"
)

//go:embed ordered.sql
var orderedSchema string

// article produces and consumes at the same time, beside the article's functions: as published, and
// with what a queue needs in addition.
func article(ctx context.Context, b *bench) (bars []bar, err error) {
	tasks := b.tasks
	if tasks == 0 {
		tasks = b.size(100_000, 1_000_000)
	}
	for _, batch := range []int{500, 10_000} {
		for _, held := range []bool{false, true} {
			what, limit := fmt.Sprintf("batches of %d", batch), 1.3
			if held {
				what, limit = what+", a transaction held open", 2.0
			}
			all, err := compare(ctx, b, what, []contender{
				{"tusk", tuskRun{tasks: tasks, batch: batch, held: held}.run},
				{"article", peerRun{"article", peers.Article, tasks, batch, held}.run},
				{"article, ordered", peerRun{"ordered", orderedSchema, tasks, batch, held}.run},
			})
			if err != nil {
				return bars, err
			}
			for _, peer := range []string{"article", "article, ordered"} {
				bars = append(bars,
					atLeast(limit, ratios(all["tusk"], all[peer], speed), "tasks/s of "+peer+", "+what, "%.0f to %.0f",
						medianOf(all["tusk"], speed), medianOf(all[peer], speed)),
					atMost(0.6, ratios(all["tusk"], all[peer], server), "server CPU of "+peer+", "+what, "%.1f us to %.1f us",
						medianOf(all["tusk"], server), medianOf(all[peer], server)))
			}
		}
	}
	return bars, nil
}

// peerRun produces and consumes with two functions of a schema.
type peerRun struct {
	name, schema string
	tasks, batch int
	held         bool
}

func (r peerRun) run(ctx context.Context, pool *pgxpool.Pool, clock *clock) (int, error) {
	if _, err := pool.Exec(ctx, r.schema); err != nil {
		return 0, err
	}
	defer pool.Exec(context.WithoutCancel(ctx), "drop schema "+r.name+" cascade")
	if r.held {
		release, err := hold(ctx, pool)
		if err != nil {
			return 0, err
		}
		defer release()
	}
	if _, err := r.together(ctx, pool, warmUp*r.batch); err != nil {
		return 0, err
	}
	clock.start(ctx)
	n, err := r.together(ctx, pool, r.tasks)
	clock.stop(ctx)
	return n, err
}

// together produces and consumes at the same time.
func (r peerRun) together(ctx context.Context, pool *pgxpool.Pool, tasks int) (int, error) {
	var made, stored, handled atomic.Int64
	total := int64(tasks / r.batch * r.batch)
	var all errgroup.Group
	for range hands {
		all.Go(func() error {
			for made.Add(int64(r.batch)) <= total {
				for stored.Load()-handled.Load() > mostWaiting*int64(r.batch) {
					time.Sleep(time.Millisecond)
				}
				if err := r.produce(ctx, pool); err != nil {
					return err
				}
				stored.Add(int64(r.batch))
			}
			return nil
		})
		all.Go(func() error {
			for handled.Load() < total {
				n, err := r.consume(ctx, pool, &handled)
				if err != nil {
					return err
				}
				if n == 0 {
					time.Sleep(time.Millisecond)
				}
			}
			return nil
		})
	}
	return int(total), all.Wait()
}

func (r peerRun) produce(ctx context.Context, pool *pgxpool.Pool) error {
	infos := make([]string, r.batch)
	for i := range infos {
		text, err := json.Marshal(work{i, pad})
		if err != nil {
			return err
		}
		infos[i] = string(text)
	}
	_, err := pool.Exec(ctx, "select "+r.name+".produce($1, $2)", 1, infos)
	return err
}

func (r peerRun) consume(ctx context.Context, pool *pgxpool.Pool, handled *atomic.Int64) (n int, err error) {
	rows, err := pool.Query(ctx, "select "+r.name+".consume($1, $2)", 1, r.batch)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for rows.Next() {
		var info string
		if err := rows.Scan(&info); err != nil {
			return n, err
		}
		var w work
		if err := json.Unmarshal([]byte(info), &w); err != nil {
			return n, err
		}
		if err := handle(ctx, w); err != nil {
			return n, err
		}
		handled.Add(1)
		n++
	}
	return n, rows.Err()
}
