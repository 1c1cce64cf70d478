package peers

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"time"

	"maragu.dev/goqite"
	"maragu.dev/goqite/jobs"

	"github.com/tuskqueue/tusk/bench/harness"
)

const goqiteCommon = "; one connection, WAL, synchronous=FULL"

var goqiteContenders = []Contender{
	{Name: "goqite", Server: SQLite, Version: module("maragu.dev/goqite"), New: newGoqite, Cannot: []string{"tenants"},
		Settings: "Create in transactions of a batch; jobs.Runner, Limit as the workers, PollInterval 1 ms (default 100 ms)" +
			goqiteCommon},
	{Name: "goqite", Variant: "calls in transactions", Aside: true, Server: SQLite, Version: module("maragu.dev/goqite"),
		New: newGoqite, Cannot: []string{"tenants", "work", "long", "rate"},
		Settings: "SendTx, ReceiveTx and DeleteTx, a batch of them in each of the caller's transactions: no message is " +
			"protected by itself" + goqiteCommon},
}

func newGoqite(variant string) harness.Peer { return &goqitePeer{inTx: variant != ""} }

// goqitePeer has no calls for batches, but its calls can share a transaction.
type goqitePeer struct {
	inTx  bool
	plan  harness.Plan
	db    *sql.DB
	queue *goqite.Queue
}

// goqiteSchema is the schema that goqite tells its users to create.
//
//go:embed goqite.sql
var goqiteSchema string

func (q *goqitePeer) Open(ctx context.Context, p harness.Plan) (err error) {
	q.plan = p
	if q.db, err = openFile(p.Target); err != nil {
		return err
	}
	q.queue = goqite.New(goqite.NewOpts{DB: q.db, Name: "default", Timeout: time.Minute})
	_, err = q.db.ExecContext(ctx, goqiteSchema)
	return err
}

func (q *goqitePeer) Enqueue(ctx context.Context, tasks []harness.Task) error {
	return q.inTransaction(ctx, func(tx *sql.Tx) error {
		for _, t := range tasks {
			m := goqite.Message{Body: t.JSON()}
			if !t.RunAt.IsZero() {
				m.Delay = time.Until(t.RunAt)
			}
			var err error
			if q.inTx {
				err = q.queue.SendTx(ctx, tx, m)
			} else {
				_, err = jobs.CreateTx(ctx, tx, q.queue, "work", m)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func (q *goqitePeer) inTransaction(ctx context.Context, do func(tx *sql.Tx) error) error {
	tx, err := q.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := do(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func (q *goqitePeer) Work(ctx context.Context, handle func(n int)) error {
	if q.inTx {
		one := consumers{loops: 1, workers: 1, pause: time.Millisecond}
		return one.run(ctx, true, q.receive, handle)
	}
	runner := jobs.NewRunner(jobs.NewRunnerOpts{Limit: q.plan.Workers, PollInterval: time.Millisecond, Queue: q.queue})
	runner.Register("work", func(_ context.Context, body []byte) error {
		n, err := harness.Number(body)
		if err == nil {
			handle(n)
		}
		return err
	})
	runner.Start(ctx)
	return nil
}

// receive deletes each message right after receiving it. Messages that are received and not deleted
// are in the way of those behind them.
func (q *goqitePeer) receive(ctx context.Context) (numbers []int, finish func(context.Context) error, err error) {
	err = q.inTransaction(ctx, func(tx *sql.Tx) error {
		for range q.plan.Batch {
			m, err := q.queue.ReceiveTx(ctx, tx)
			if err != nil || m == nil {
				return err
			}
			n, err := harness.Number(m.Body)
			if err != nil {
				return err
			}
			if err := q.queue.DeleteTx(ctx, tx, m.ID); err != nil {
				return err
			}
			numbers = append(numbers, n)
		}
		return nil
	})
	return numbers, nil, err
}

func (q *goqitePeer) Left(ctx context.Context) (int, error) {
	return countRows(ctx, q.db, "select count(*) from goqite")
}

func (q *goqitePeer) Close() error { return q.db.Close() }
