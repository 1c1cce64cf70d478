package peers

import (
	"context"
	"math"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk/bench/harness"
)

var pgmq = []Contender{{
	Name: "pgmq", Server: Postgres, Version: func() string { return os.Getenv("PGMQ_VERSION") },
	New: func(string) harness.Peer { return &pgmqPeer{} },
	SQL: "PGMQ_SQL", Cannot: []string{"tenants"},
	Settings: "send_batch; two loops of read and delete in batches, polling every 2 ms when idle; a plain logged queue",
}}

type pgmqPeer struct {
	plan harness.Plan
	pool *pgxpool.Pool
}

func (q *pgmqPeer) Open(ctx context.Context, p harness.Plan) (err error) {
	q.plan = p
	if q.pool, err = openPool(ctx, p.Target, 12); err != nil {
		return err
	}
	if err := install(ctx, q.pool, p.Install); err != nil {
		return err
	}
	_, err = q.pool.Exec(ctx, "select pgmq.create('work')")
	return err
}

func (q *pgmqPeer) Enqueue(ctx context.Context, tasks []harness.Task) error {
	messages, delay := texts(tasks), 0.0
	if at := tasks[0].RunAt; !at.IsZero() {
		delay = math.Ceil(time.Until(at).Seconds()) // it takes whole seconds
	}
	_, err := q.pool.Exec(ctx, "select from pgmq.send_batch('work', $1::text[]::jsonb[], $2::int)", messages, int(delay))
	return err
}

func texts(tasks []harness.Task) []string {
	all := make([]string, len(tasks))
	for i, t := range tasks {
		all[i] = string(t.JSON())
	}
	return all
}

func (q *pgmqPeer) Work(ctx context.Context, handle func(n int)) error {
	loops := consumers{loops: min(2, q.plan.Workers), workers: q.plan.Workers, pause: 2 * time.Millisecond}
	return loops.run(ctx, q.plan.Work == 0, q.read, handle)
}

func (q *pgmqPeer) read(ctx context.Context) (numbers []int, finish func(context.Context) error, err error) {
	rows, err := q.pool.Query(ctx, "select msg_id, message from pgmq.read('work', 60, $1)", fetchSize(q.plan))
	if err != nil {
		return nil, nil, err
	}
	defer rows.Close()
	var ids []int64
	for rows.Next() {
		var id int64
		var message []byte
		if err := rows.Scan(&id, &message); err != nil {
			return nil, nil, err
		}
		n, err := harness.Number(message)
		if err != nil {
			return nil, nil, err
		}
		ids, numbers = append(ids, id), append(numbers, n)
	}
	finish = func(ctx context.Context) error {
		_, err := q.pool.Exec(ctx, "select from pgmq.delete('work', $1::bigint[])", ids)
		return err
	}
	return numbers, finish, rows.Err()
}

// fetchSize is the plan's batch if handlers take no time. Otherwise it is limited by the number of
// handlers, since more tasks would wait in the batch's loop.
func fetchSize(p harness.Plan) int {
	if p.Work == 0 {
		return p.Batch
	}
	return min(p.Batch, max(p.Workers/2, 1))
}

func (q *pgmqPeer) Left(ctx context.Context) (int, error) {
	return count(ctx, q.pool, "select count(*) from pgmq.q_work")
}

func (q *pgmqPeer) Close() error { q.pool.Close(); return nil }
