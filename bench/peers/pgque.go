package peers

import (
	"context"
	"os"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/tuskqueue/tusk/bench/harness"
)

var pgque = []Contender{{
	Name: "PgQue", Server: Postgres, Version: func() string { return os.Getenv("PGQUE_VERSION") },
	New: func(string) harness.Peer { return &pgquePeer{} },
	SQL: "PGQUE_SQL", Cannot: []string{"tenants", "scheduled"},
	Settings: "send_batch; one consumer of receive and ack, a batch being what a tick brings; ticks every 10 ms " +
		"(default 100 ms), ticker_max_lag 10 ms; its maintenance at its own intervals",
}}

type pgquePeer struct {
	plan  harness.Plan
	pool  *pgxpool.Pool
	sent  atomic.Int64
	acked atomic.Int64
}

func (q *pgquePeer) Open(ctx context.Context, p harness.Plan) (err error) {
	q.plan = p
	if q.pool, err = openPool(ctx, p.Target, 12); err != nil {
		return err
	}
	if err := install(ctx, q.pool, p.Install); err != nil {
		return err
	}
	for _, statement := range []string{
		"select pgque.create_queue('work')",
		"select pgque.set_queue_config('work', 'ticker_max_lag', '10 milliseconds')",
		"select pgque.subscribe('work', 'bench')",
	} {
		if _, err := q.pool.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

func (q *pgquePeer) Enqueue(ctx context.Context, tasks []harness.Task) error {
	if !tasks[0].RunAt.IsZero() {
		return errNoTime
	}
	_, err := q.pool.Exec(ctx, "select pgque.send_batch('work', 'work', $1::text[])", texts(tasks))
	q.sent.Add(int64(len(tasks)))
	return err
}

// Work ticks, maintains and consumes. It runs the jobs that PgQue gives to a scheduler, at their
// intervals, and the user's part.
func (q *pgquePeer) Work(ctx context.Context, handle func(n int)) error {
	crew, ctx := errgroup.WithContext(ctx)
	crew.Go(func() error { return every(ctx, q.pool, 10*time.Millisecond, "select pgque.ticker()") })
	crew.Go(func() error { return every(ctx, q.pool, 30*time.Second, "select pgque.maint_retry_events()") })
	crew.Go(func() error { return every(ctx, q.pool, 30*time.Second, "select pgque.maint()") })
	crew.Go(func() error { return every(ctx, q.pool, 10*time.Second, "select pgque.maint_rotate_tables_step2()") })
	crew.Go(func() error {
		one := consumers{loops: 1, workers: q.plan.Workers, pause: 2 * time.Millisecond}
		return one.run(ctx, q.plan.Work == 0, q.receiveAgain, handle)
	})
	return crew.Wait()
}

// receiveAgain retries while PgQue's bookkeeping is rotated. That can hide the consumer's tick and
// cause an error.
func (q *pgquePeer) receiveAgain(ctx context.Context) (numbers []int, finish func(context.Context) error, err error) {
	for range 10 {
		if numbers, finish, err = q.receive(ctx); err == nil || ctx.Err() != nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	return numbers, finish, err
}

func (q *pgquePeer) receive(ctx context.Context) (numbers []int, finish func(context.Context) error, err error) {
	rows, err := q.pool.Query(ctx, "select batch_id, payload from pgque.receive('work', 'bench', $1)", 1<<30)
	if err != nil {
		return nil, nil, err
	}
	defer rows.Close()
	var batch int64
	for rows.Next() {
		var payload []byte
		if err := rows.Scan(&batch, &payload); err != nil {
			return nil, nil, err
		}
		n, err := harness.Number(payload)
		if err != nil {
			return nil, nil, err
		}
		numbers = append(numbers, n)
	}
	finish = func(ctx context.Context) error {
		_, err := q.pool.Exec(ctx, "select pgque.ack($1)", batch)
		q.acked.Add(int64(len(numbers)))
		return err
	}
	return numbers, finish, rows.Err()
}

// Left counts the tasks that were sent and not acknowledged, since events stay in their table until
// it is rotated. Before the first acknowledgement, it counts the rows of the table.
func (q *pgquePeer) Left(ctx context.Context) (int, error) {
	if q.acked.Load() == 0 {
		return count(ctx, q.pool, "select count(*) from pgque.event_1")
	}
	return int(q.sent.Load() - q.acked.Load()), nil
}

func (q *pgquePeer) Close() error { q.pool.Close(); return nil }
