// Package scenario has what contenders are put through, one a file: a plan, and
// what surrounds it.
package scenario

import (
	"context"
	"database/sql"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tuskqueue/tusk/bench/harness"
	"github.com/tuskqueue/tusk/store/mysql"
)

// Size of a benchmark.
type Size struct {
	Seconds  float64 // that a run is to take, by what the contender did in a pilot run
	Most     int     // tasks of a run
	History  int
	Patience time.Duration // for the history
	Rate     float64       // tasks per second of the fixed rate
	RateFor  time.Duration
	Rounds   int
	Within   time.Duration // all of it; rounds are left out for that. 0: however long it takes
}

// Short and Full are the two benchmarks.
var (
	Short = Size{Seconds: 1, Most: 100_000, History: 100_000, Patience: 3 * time.Second, Rate: 250,
		RateFor: 3 * time.Second, Rounds: 3, Within: 12 * time.Minute}
	Full = Size{Seconds: 15, Most: 1_000_000, History: 10_000_000, Patience: 15 * time.Minute, Rate: 1000,
		RateFor: time.Minute, Rounds: 5}
)

// Scenario is one of the things that contenders are put through.
type Scenario struct {
	Name  string // as contenders refer to it
	Title string
	What  string // in a sentence
	Main  bool   // all take part in the short benchmark, with all their variants
	Waits bool   // the times from due to started are its result, not tasks per second

	// Plan for a contender that does so many tasks per second.
	Plan func(size Size, perSecond float64) harness.Plan
	// Around makes what goes on meanwhile; nil: nothing.
	Around func(t Target) harness.Surroundings
}

// Target is where a contender's tasks are.
type Target struct {
	DSN   string // of PostgreSQL
	MySQL string // DSN
	File  string // of SQLite
}

// All scenarios, in the order of the report.
var All = []Scenario{enqueue, consume, together, rate, held, readers, history, work, long, scheduled, tenants}

const (
	batch   = 500
	workers = 100
)

// plan that all scenarios begin with.
func plan(order harness.Order, tasks int) harness.Plan {
	return harness.Plan{Order: order, Tasks: tasks, Batch: batch, Workers: workers, Producers: 2}
}

// steps are numbers of tasks that runs have: contenders that are about as fast have
// the same, so that what a run costs at its beginning and its end weighs the same.
var steps = []int{500, 2000, 8000, 30_000, 100_000, 300_000, 1_000_000}

// tasks for about so many seconds: the step that is nearest by its ratio.
func (s Size) tasks(perSecond float64, seconds float64) int {
	best, farthest := steps[0], math.Inf(1)
	for _, step := range steps {
		if far := math.Abs(math.Log(float64(step) / (perSecond * seconds))); step <= s.Most && far < farthest {
			best, farthest = step, far
		}
	}
	return best
}

// hold opens a transaction that keeps the server from forgetting rows, as a report
// that runs for hours does.
func hold(ctx context.Context, t Target) (end func(), err error) {
	switch {
	case t.File != "":
		return holdFile(ctx, t.File)
	case t.MySQL != "":
		return holdMySQL(ctx, t.MySQL)
	}
	c, err := pgx.Connect(ctx, t.DSN)
	if err != nil {
		return nil, err
	}
	const snapshot = "begin isolation level repeatable read; select pg_current_xact_id(), count(*) from pg_class"
	if _, err := c.Exec(ctx, snapshot); err != nil {
		c.Close(ctx)
		return nil, err
	}
	return func() { c.Close(context.WithoutCancel(ctx)) }, nil
}

// holdMySQL does the same there.
func holdMySQL(ctx context.Context, dsn string) (end func(), err error) {
	db, _, err := mysql.Pool(dsn)
	if err != nil {
		return nil, err
	}
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	if err == nil {
		var n int
		err = tx.QueryRowContext(ctx, "select count(*) from information_schema.innodb_trx").Scan(&n)
	}
	if err == nil {
		_, err = tx.ExecContext(ctx, "start transaction with consistent snapshot")
	}
	if err != nil {
		db.Close()
		return nil, err
	}
	return func() { _ = tx.Rollback(); db.Close() }, nil
}

// holdFile reads from a file and does not end its transaction, so that the
// write-ahead log cannot be reused.
func holdFile(ctx context.Context, path string) (end func(), err error) {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)")
	if err != nil {
		return nil, err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		db.Close()
		return nil, err
	}
	var n int
	if err := tx.QueryRowContext(ctx, "select count(*) from sqlite_master").Scan(&n); err != nil {
		db.Close()
		return nil, err
	}
	return func() { _ = tx.Rollback(); db.Close() }, nil
}
