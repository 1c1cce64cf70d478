package peers

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/tuskqueue/tusk/bench/harness"
)

// pgq is PgQ, from which PgQue is derived. Debian has it as an extension.
var pgq = []Contender{{
	Name: "PgQ", Server: Postgres, Version: func() string { return "Debian's" }, New: func(string) harness.Peer {
		return &pgqPeer{}
	},
	Cannot: []string{"tenants", "scheduled"},
	Settings: "insert_event for each of a batch, in one statement; one consumer of next_batch, get_batch_events and " +
		"finish_batch, a batch being what a tick brings; " +
		"ticks every 10 ms (its daemon's default: 1 s), ticker_max_lag 10 ms; its maintenance every 2 minutes",
}}

type pgqPeer struct {
	plan  harness.Plan
	pool  *pgxpool.Pool
	sent  atomic.Int64
	acked atomic.Int64
}

func (q *pgqPeer) Open(ctx context.Context, p harness.Plan) (err error) {
	q.plan = p
	if q.pool, err = openPool(ctx, p.Target, 12); err != nil {
		return err
	}
	for _, statement := range []string{
		"create extension pgq",
		"select pgq.create_queue('work')",
		"select pgq.set_queue_config('work', 'ticker_max_lag', '10 milliseconds')",
		"select pgq.register_consumer('work', 'bench')",
	} {
		if _, err := q.pool.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

func (q *pgqPeer) Enqueue(ctx context.Context, tasks []harness.Task) error {
	if !tasks[0].RunAt.IsZero() {
		return errNoTime
	}
	_, err := q.pool.Exec(ctx, "select pgq.insert_event('work', 'work', t) from unnest($1::text[]) t", texts(tasks))
	q.sent.Add(int64(len(tasks)))
	return err
}

// Work does what PgQ's daemon does, and consumes.
func (q *pgqPeer) Work(ctx context.Context, handle func(n int)) error {
	crew, ctx := errgroup.WithContext(ctx)
	crew.Go(func() error { return every(ctx, q.pool, 10*time.Millisecond, "select pgq.ticker()") })
	crew.Go(func() error { return every(ctx, q.pool, 2*time.Minute, "select pgq.maint_rotate_tables_step1('work')") })
	crew.Go(func() error { return every(ctx, q.pool, 2*time.Minute, "select pgq.maint_rotate_tables_step2()") })
	crew.Go(func() error {
		one := consumers{loops: 1, workers: q.plan.Workers, pause: 2 * time.Millisecond}
		return one.run(ctx, q.plan.Work == 0, q.receive, handle)
	})
	return crew.Wait()
}

func (q *pgqPeer) receive(ctx context.Context) (numbers []int, finish func(context.Context) error, err error) {
	for { // a tick may bring an empty batch
		var batch *int64
		if err := q.pool.QueryRow(ctx, "select pgq.next_batch('work', 'bench')").Scan(&batch); err != nil || batch == nil {
			return nil, nil, err
		}
		rows, err := q.pool.Query(ctx, "select ev_data from pgq.get_batch_events($1)", *batch)
		if err != nil {
			return nil, nil, err
		}
		if numbers, err = numbersOf(rows); err != nil {
			return nil, nil, err
		}
		finish = func(ctx context.Context) error {
			_, err := q.pool.Exec(ctx, "select pgq.finish_batch($1)", *batch)
			q.acked.Add(int64(len(numbers)))
			return err
		}
		if len(numbers) > 0 {
			return numbers, finish, nil
		}
		if err := finish(ctx); err != nil {
			return nil, nil, err
		}
	}
}

// Left counts like PgQue's Left.
func (q *pgqPeer) Left(ctx context.Context) (int, error) {
	if q.acked.Load() == 0 {
		return count(ctx, q.pool, "select count(*) from pgq.event_1")
	}
	return int(q.sent.Load() - q.acked.Load()), nil
}

func (q *pgqPeer) Close() error { q.pool.Close(); return nil }
