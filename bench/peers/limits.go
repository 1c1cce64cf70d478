package peers

import (
	"context"
	_ "embed"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk/bench/harness"
)

//go:embed limits.sql
var limitsFile string

var limitSQL = sections(limitsFile)

// consuming lists the scenarios for which a contender that can only enqueue has no means.
var consuming = []string{"consume", "together", "rate", "held", "readers", "history", "work", "long",
	"scheduled", "tenants"}

var limits = []Contender{
	{Name: "limit: COPY", Server: Postgres, Version: statementsOnly, New: func(string) harness.Peer {
		return &limitPeer{copies: true}
	},
		Settings: "bare COPY into a table of one column without an index", Cannot: consuming},
	{Name: "limit: insert, delete + insert", Aside: true, Server: Postgres, Version: statementsOnly,
		New: func(string) harness.Peer { return &limitPeer{} },
		Settings: "inserts of a batch into a table of one column without an index; two loops that delete a batch in any " +
			"order and insert it elsewhere",
		Cannot: []string{"rate", "history", "work", "long", "scheduled", "tenants"}},
}

// limitPeer is not a queue: it shows what the bare writes cost the server.
type limitPeer struct {
	copies bool
	plan   harness.Plan
	pool   *pgxpool.Pool
}

func (l *limitPeer) Open(ctx context.Context, p harness.Plan) (err error) {
	l.plan = p
	if l.pool, err = openPool(ctx, p.Target, 12); err != nil {
		return err
	}
	_, err = l.pool.Exec(ctx, limitSQL["tables"])
	return err
}

func (l *limitPeer) Enqueue(ctx context.Context, tasks []harness.Task) (err error) {
	if !l.copies {
		_, err = l.pool.Exec(ctx, limitSQL["insert"], texts(tasks))
		return err
	}
	rows := pgx.CopyFromSlice(len(tasks), func(i int) ([]any, error) { return []any{string(tasks[i].JSON())}, nil })
	_, err = l.pool.CopyFrom(ctx, pgx.Identifier{"bare"}, []string{"args"}, rows)
	return err
}

func (l *limitPeer) Work(ctx context.Context, handle func(n int)) error {
	two := consumers{loops: 2, workers: l.plan.Workers, pause: 2 * time.Millisecond}
	return two.run(ctx, true, l.delete, handle)
}

func (l *limitPeer) delete(ctx context.Context) ([]int, func(context.Context) error, error) {
	rows, err := l.pool.Query(ctx, limitSQL["delete"], l.plan.Batch)
	if err != nil {
		return nil, nil, err
	}
	numbers, err := numbersOf(rows)
	return numbers, nil, err
}

// numbersOf reads rows of args.
func numbersOf(rows pgx.Rows) ([]int, error) {
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (int, error) {
		var args []byte
		if err := row.Scan(&args); err != nil {
			return 0, err
		}
		return harness.Number(args)
	})
}

func (l *limitPeer) Left(ctx context.Context) (int, error) {
	return count(ctx, l.pool, "select count(*) from bare")
}

func (l *limitPeer) Close() error { l.pool.Close(); return nil }
