package peers

import (
	"context"
	_ "embed"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk/bench/harness"
)

//go:embed articles.sql
var articlesFile string

var articleSQL = sections(articlesFile)

var articles = []Contender{
	{Name: "article: status column", Aside: true, Server: Postgres, Version: statementsOnly, New: func(string) harness.Peer { return &statusPeer{} },
		Settings: "rows inserted in batches; claimed and finished one by one, in as many loops as workers, at most 32", Cannot: []string{"scheduled", "tenants"}},
	{Name: "article: delete and move", Server: Postgres, Version: statementsOnly, New: func(string) harness.Peer { return &movedPeer{} },
		Settings: "rows inserted in batches; two loops, a batch deleted and moved in one statement before it is handled: at most once, no retry; autovacuum off", Cannot: []string{"scheduled"}},
}

func statementsOnly() string { return "" }

// statusPeer claims a task by its status and finishes it by its status.
type statusPeer struct {
	plan harness.Plan
	pool *pgxpool.Pool
}

func (a *statusPeer) Open(ctx context.Context, p harness.Plan) (err error) {
	a.plan = p
	if a.pool, err = openPool(ctx, p.Target, a.loops()+4); err != nil {
		return err
	}
	_, err = a.pool.Exec(ctx, articleSQL["status"])
	return err
}

func (a *statusPeer) loops() int { return min(a.plan.Workers, 32) }

func (a *statusPeer) Enqueue(ctx context.Context, tasks []harness.Task) error {
	_, err := a.pool.Exec(ctx, "insert into status_task (args) select unnest($1::text[])", texts(tasks))
	return err
}

func (a *statusPeer) Work(ctx context.Context, handle func(n int)) error {
	loops := consumers{loops: a.loops(), workers: a.loops(), pause: 2 * time.Millisecond}
	return loops.run(ctx, true, a.claim, handle)
}

func (a *statusPeer) claim(ctx context.Context) ([]int, func(context.Context) error, error) {
	rows, err := a.pool.Query(ctx, articleSQL["status claim"])
	if err != nil {
		return nil, nil, err
	}
	defer rows.Close()
	if !rows.Next() {
		return nil, nil, rows.Err()
	}
	var id int64
	var args []byte
	if err := rows.Scan(&id, &args); err != nil {
		return nil, nil, err
	}
	n, err := harness.Number(args)
	return []int{n}, func(ctx context.Context) error {
		_, err := a.pool.Exec(ctx, articleSQL["status done"], id)
		return err
	}, err
}

func (a *statusPeer) Left(ctx context.Context) (int, error) {
	return count(ctx, a.pool, "select count(*) from status_task where status in ('new', 'running')")
}

func (a *statusPeer) Close() error { a.pool.Close(); return nil }

// movedPeer deletes tasks and moves them to the history when it takes them.
type movedPeer struct {
	plan harness.Plan
	pool *pgxpool.Pool
	next chan int // whose turn it is, when there are tenants
}

func (a *movedPeer) Open(ctx context.Context, p harness.Plan) (err error) {
	a.plan = p
	tenants := max(p.Tenants, 1)
	a.next = make(chan int, tenants)
	for tenant := range tenants {
		a.next <- tenant
	}
	if a.pool, err = openPool(ctx, p.Target, 12); err != nil {
		return err
	}
	_, err = a.pool.Exec(ctx, articleSQL["moved"])
	return err
}

func (a *movedPeer) Enqueue(ctx context.Context, tasks []harness.Task) error {
	tenants := make([]int32, len(tasks))
	for i, t := range tasks {
		tenants[i] = int32(t.Tenant)
	}
	_, err := a.pool.Exec(ctx, articleSQL["moved produce"], tenants, texts(tasks))
	return err
}

func (a *movedPeer) Work(ctx context.Context, handle func(n int)) error {
	loops := consumers{loops: min(2, a.plan.Workers), workers: a.plan.Workers, pause: 2 * time.Millisecond}
	return loops.run(ctx, a.plan.Work == 0, a.consume, handle)
}

func (a *movedPeer) consume(ctx context.Context) ([]int, func(context.Context) error, error) {
	tenant := <-a.next
	a.next <- tenant
	rows, err := a.pool.Query(ctx, articleSQL["moved consume"], tenant, fetchSize(a.plan))
	if err != nil {
		return nil, nil, err
	}
	numbers, err := numbersOf(rows)
	return numbers, nil, err
}

func (a *movedPeer) Left(ctx context.Context) (int, error) {
	return count(ctx, a.pool, "select count(*) from moved_task")
}

func (a *movedPeer) Close() error { a.pool.Close(); return nil }
