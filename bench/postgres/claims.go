package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

//go:embed fill.sql
var fillSQL string

// claims measures what a claim of 50 tasks costs the server, on one connection.
type claims struct {
	client *tusk.Client
	engine *postgres.Store
	conn   *pgx.Conn
	worker store.ID
}

func newClaims(ctx context.Context, b *bench) (*claims, error) {
	client, err := fresh(ctx, b.pool, postgres.Options{})
	if err != nil {
		return nil, err
	}
	engine, ok := client.Store().(*postgres.Store)
	if !ok {
		return nil, fmt.Errorf("the engine is a %T", client.Store())
	}
	conn, err := pgx.ConnectConfig(ctx, b.pool.Config().ConnConfig.Copy())
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, strings.ReplaceAll(fillSQL, "tusk_fn", engine.FunctionSchema())); err != nil {
		return nil, err
	}
	c := &claims{client, engine, conn, tusk.NewID()}
	_, err = engine.Extend(ctx, store.Beat{Worker: store.Worker{ID: c.worker, Queues: []string{"default"}},
		TTL: 24 * time.Hour})
	return c, err
}

const claimSize = 50

// claimCost is the lowest cost among several claims.
type claimCost struct {
	pages int
	cpu   time.Duration
}

func (c *claims) cost(ctx context.Context, what string) (least claimCost, err error) {
	text := strings.ReplaceAll("select cardinality(ids) from tusk_fn.claim($1, gen_random_uuid(), "+
		"array[tusk_fn.lane_of('default', -32768)], $2, false, 0, false, false)", "tusk_fn", c.engine.FunctionSchema())
	least = claimCost{1 << 30, time.Hour}
	for range 20 {
		before, err := backendCPU(c.conn.PgConn().PID())
		if err != nil {
			return least, err
		}
		var n int
		if err := c.conn.QueryRow(ctx, text, [16]byte(c.worker), claimSize).Scan(&n); err != nil {
			return least, err
		}
		after, err := backendCPU(c.conn.PgConn().PID())
		if err != nil {
			return least, err
		}
		if n != claimSize {
			return least, fmt.Errorf("claimed %d of %d", n, claimSize)
		}
		least.cpu = min(least.cpu, after-before)
	}
	for range 4 {
		var plan []byte
		if err := c.conn.QueryRow(ctx, "explain (analyze, buffers, format json) "+text, [16]byte(c.worker),
			claimSize).Scan(&plan); err != nil {
			return least, err
		}
		var plans []struct {
			Plan struct {
				Hit  int `json:"Shared Hit Blocks"`
				Read int `json:"Shared Read Blocks"`
			}
		}
		if err := json.Unmarshal(plan, &plans); err != nil {
			return least, err
		}
		least.pages = min(least.pages, plans[0].Plan.Hit+plans[0].Plan.Read)
	}
	fmt.Fprintf(os.Stderr, "a claim of %d %s: %d pages, %v\n", claimSize, what, least.pages, least.cpu)
	return least, nil
}

// fill adds n tasks in batches, as a client does.
func (c *claims) fill(ctx context.Context, n int) error {
	return c.make(ctx, "tasks", n, "call tusk.bench_fill($1, $2, 'work', $3)", n, batchSize, args())
}

// finish turns n waiting tasks into history.
func (c *claims) finish(ctx context.Context, n int) error {
	return c.make(ctx, "finished tasks", n, "call tusk.bench_finish($1, $2, $3)", n, batchSize, [16]byte(c.worker))
}

func (c *claims) schedule(ctx context.Context, n int) error {
	return c.make(ctx, "scheduled tasks", n, "call tusk.bench_schedule($1, 'work', $2)", n, args())
}

// make calls a procedure on a separate connection, so that the measured connection stays as it was.
func (c *claims) make(ctx context.Context, what string, n int, call string, with ...any) error {
	began := time.Now()
	conn, err := pgx.ConnectConfig(ctx, c.conn.Config())
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, call, with...); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%d %s in %v\n", n, what, time.Since(began).Round(time.Second))
	return nil
}

const batchSize = 10_000

// args returns the args of every task as JSON.
func args() string {
	text, err := json.Marshal(work{1, pad})
	if err != nil {
		panic(err) // a number and a string always encode
	}
	return string(text)
}

func (c claimCost) bars(alone claimCost, what string) []bar {
	return []bar{
		atMost(1.5, float64(c.pages)/float64(alone.pages), "pages that a claim touches "+what, "%d to %d", c.pages,
			alone.pages),
		atMost(1.5, float64(c.cpu)/float64(alone.cpu), "server CPU of a claim "+what, "%v to %v", c.cpu, alone.cpu),
	}
}

// backlog measures what a claim costs with many waiting, finished and scheduled tasks.
func backlog(ctx context.Context, b *bench) (bars []bar, err error) {
	c, err := newClaims(ctx, b)
	if err != nil {
		return nil, err
	}
	defer c.conn.Close(ctx)
	many, scheduled := b.size(200_000, 10_000_000), b.size(50_000, 1_000_000)
	if err := c.fill(ctx, 10_000); err != nil {
		return nil, err
	}
	alone, err := c.cost(ctx, "of 10,000")
	if err != nil {
		return nil, err
	}
	if err := c.fill(ctx, many); err != nil {
		return nil, err
	}
	cost, err := c.cost(ctx, fmt.Sprintf("of %d", many))
	if err != nil {
		return nil, err
	}
	bars = append(bars, cost.bars(alone, fmt.Sprintf("with %d waiting, to that with 10,000", many))...)
	if err := c.finish(ctx, many-10_000); err != nil {
		return bars, err
	}
	if err := c.schedule(ctx, scheduled); err != nil {
		return bars, err
	}
	if cost, err = c.cost(ctx, fmt.Sprintf("after %d, with %d scheduled", many, scheduled)); err != nil {
		return bars, err
	}
	return append(bars, cost.bars(alone, fmt.Sprintf("after %d finished, with %d scheduled, to that with neither",
		many-10_000, scheduled))...), nil
}

// invisible measures what a claim costs if the lane has rows that nobody can see yet, or that
// nobody will ever see.
func invisible(ctx context.Context, b *bench) (bars []bar, err error) {
	c, err := newClaims(ctx, b)
	if err != nil {
		return nil, err
	}
	defer c.conn.Close(ctx)
	n := b.size(50_000, 1_000_000)
	if err := c.fill(ctx, 10_000); err != nil {
		return nil, err
	}
	alone, err := c.cost(ctx, "alone")
	if err != nil {
		return nil, err
	}
	tx, err := b.pool.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback(context.WithoutCancel(ctx))
	if _, err := tx.Exec(ctx, "select tusk.bench_add($1, 'work', $2)", n, args()); err != nil {
		return nil, err
	}
	for _, state := range []string{"uncommitted", "rolled back"} {
		if state == "rolled back" {
			if err := tx.Rollback(ctx); err != nil {
				return bars, err
			}
		}
		// Claim all rows that were stored before, so that the next claims have to get past those
		// rows. The first claim that does so notes how far it got.
		if err := c.drain(ctx); err != nil {
			return bars, err
		}
		if err := c.fill(ctx, 10_000); err != nil {
			return bars, err
		}
		cost, err := c.cost(ctx, fmt.Sprintf("with %d %s in the lane", n, state))
		if err != nil {
			return bars, err
		}
		bars = append(bars, cost.bars(alone, fmt.Sprintf("with %d rows %s, to that without", n, state))...)
	}
	return bars, nil
}

func (c *claims) drain(ctx context.Context) error {
	for {
		tasks, err := c.engine.Claim(ctx, store.ClaimRequest{Worker: c.worker, Queues: []string{"default"}, Limit: 10_000,
			Token: store.NewToken()})
		if err != nil || len(tasks) == 0 {
			return err
		}
	}
}
