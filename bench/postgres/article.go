package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"
)

//go:embed article.sql
var articleSchema string

// work is the args of a task, for both contenders.
type work struct {
	N   int    `json:"n"`
	Pad string `json:"pad"`
}

func (work) Kind() string { return "work" }

// runArticle produces and consumes with the article's functions.
func runArticle(ctx context.Context, pool *pgxpool.Pool, s setting) (time.Duration, error) {
	if _, err := pool.Exec(ctx, articleSchema); err != nil {
		return 0, err
	}
	defer pool.Exec(context.WithoutCancel(ctx), "drop schema article cascade")
	begun := time.Now()
	var handled atomic.Int64
	var all errgroup.Group
	for p := range s.producers {
		all.Go(func() error { return articleProducer(ctx, pool, s, p) })
	}
	for range s.consumers {
		all.Go(func() error {
			for handled.Load() < int64(s.tasks) {
				n, err := articleConsume(ctx, pool, s.batch, &handled)
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
	err := all.Wait()
	return time.Since(begun), err
}

func articleProducer(ctx context.Context, pool *pgxpool.Pool, s setting, p int) error {
	share := s.tasks / s.producers
	if p == 0 {
		share += s.tasks % s.producers
	}
	for at := 0; at < share; at += s.batch {
		infos := make([]string, min(s.batch, share-at))
		for i := range infos {
			text, err := json.Marshal(work{at + i, s.payload})
			if err != nil {
				return err
			}
			infos[i] = string(text)
		}
		if _, err := pool.Exec(ctx, "select article.produce($1, $2)", 1, infos); err != nil {
			return err
		}
	}
	return nil
}

func articleConsume(ctx context.Context, pool *pgxpool.Pool, batch int, handled *atomic.Int64) (n int, err error) {
	rows, err := pool.Query(ctx, "select article.consume($1, $2)", 1, batch)
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

// handle is the handler of both.
func handle(context.Context, work) error { return nil }
