package peers

import (
	"context"
	_ "embed"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk/bench/harness"
)

//go:embed articles.sql
var articlesFile string

var articleSQL = sections(articlesFile)

// Article is the schema and the functions of the article about massive scheduling.
//
//go:embed article.sql
var Article string

var articles = []Contender{
	{Name: "article: status column", Aside: true, Server: Postgres, Version: statementsOnly,
		New:      func(string) harness.Peer { return &statusPeer{} },
		Settings: "rows inserted in batches; claimed and finished one by one, in as many loops as workers, at most 32",
		Cannot:   []string{"scheduled", "tenants"}},
	{Name: "article: delete and move", Server: Postgres, Version: statementsOnly, New: func(string) harness.Peer {
		return &movedPeer{}
	},
		Settings: "rows inserted in batches; two loops, a batch deleted and moved in one statement before it is handled: " +
			"at most once, no retry; autovacuum off", Cannot: []string{"scheduled"}},
}

func statementsOnly() string { return "" }

// statusPeer claims and finishes tasks by their status.
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
	next chan int // whose turn it is, if there are tenants

	stored, taken atomic.Int64
}

func (a *movedPeer) Open(ctx context.Context, p harness.Plan) (err error) {
	a.plan = p
	tenants := max(p.Tenants, 1)
	a.next = make(chan int, tenants)
	for tenant := range tenants {
		a.next <- tenant + 1
	}
	if a.pool, err = openPool(ctx, p.Target, 12); err != nil {
		return err
	}
	if _, err = a.pool.Exec(ctx, Article); err != nil || tenants == 1 {
		return err
	}
	for user := 2; user <= tenants; user++ {
		if _, err := a.pool.Exec(ctx, "select article.add_user($1)", user); err != nil {
			return err
		}
	}
	return nil
}

func (a *movedPeer) Enqueue(ctx context.Context, tasks []harness.Task) error {
	of := map[int][]harness.Task{} // a call is for one user
	for _, t := range tasks {
		of[t.Tenant] = append(of[t.Tenant], t)
	}
	for tenant, part := range of {
		if _, err := a.pool.Exec(ctx, "select article.produce($1, $2::text[])", tenant+1, texts(part)); err != nil {
			return err
		}
		a.stored.Add(int64(len(part)))
	}
	return nil
}

func (a *movedPeer) Work(ctx context.Context, handle func(n int)) error {
	loops := consumers{loops: min(2, a.plan.Workers), workers: a.plan.Workers, pause: 2 * time.Millisecond}
	return loops.run(ctx, a.plan.Work == 0, a.consume, handle)
}

func (a *movedPeer) consume(ctx context.Context) ([]int, func(context.Context) error, error) {
	tenant := <-a.next
	a.next <- tenant
	rows, err := a.pool.Query(ctx, "select article.consume($1, $2)", tenant, fetchSize(a.plan))
	if err != nil {
		return nil, nil, err
	}
	numbers, err := numbersOf(rows)
	a.taken.Add(int64(len(numbers)))
	return numbers, nil, err
}

func (a *movedPeer) Left(ctx context.Context) (int, error) {
	if a.plan.Tenants > 1 { // there are as many tables
		return int(a.stored.Load() - a.taken.Load()), nil
	}
	return count(ctx, a.pool, "select count(*) from article.task_init_1")
}

func (a *movedPeer) Close() error { a.pool.Close(); return nil }
