// Package scenario has the scenarios that contenders are put through, one per file: a plan, and
// what goes on around it.
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

// Size is the size of a benchmark.
type Size struct {
	Seconds  float64 // target length of a run, by the contender's speed in a pilot run
	Most     int     // most tasks in a run
	History  int
	Patience time.Duration // for making the history
	Rate     float64       // tasks per second in the scenario "rate"
	RateFor  time.Duration
	Rounds   int
	Within   time.Duration // time limit for everything, which may cost rounds; 0 means none
}

// Short and Full are the sizes of the two benchmarks.
var (
	Short = Size{Seconds: 1, Most: 100_000, History: 100_000, Patience: 3 * time.Second, Rate: 250,
		RateFor: 3 * time.Second, Rounds: 3, Within: 12 * time.Minute}
	Full = Size{Seconds: 15, Most: 1_000_000, History: 10_000_000, Patience: 15 * time.Minute, Rate: 1000,
		RateFor: time.Minute, Rounds: 5}
)

// Scenario is one of the tests that contenders are put through.
type Scenario struct {
	Name  string // as contenders refer to it
	Title string
	What  string // in one sentence
	Main  bool   // all contenders take part in the short benchmark, with all variants
	Waits bool   // the result is the times from due to start, not tasks per second

	// Plan returns the plan for a contender that does so many tasks per second.
	Plan func(size Size, perSecond float64) harness.Plan
	// Around sets up what goes on meanwhile; nil means nothing.
	Around func(t Target) harness.Surroundings
}

// Target says where a contender's tasks are.
type Target struct {
	DSN   string // of PostgreSQL
	MySQL string // DSN
	File  string // of SQLite
}

// All lists all scenarios in the order of the report.
var All = []Scenario{enqueue, consume, together, rate, held, readers, history, work, long, scheduled, tenants}

const (
	batch   = 500
	workers = 100
)

// plan returns the plan that all scenarios start from.
func plan(order harness.Order, tasks int) harness.Plan {
	return harness.Plan{Order: order, Tasks: tasks, Batch: batch, Workers: workers, Producers: 2}
}

// steps are the numbers of tasks that runs can have. Contenders that are about equally fast have
// the same number, so that the cost of a run's beginning and end has the same weight.
var steps = []int{500, 2000, 8000, 30_000, 100_000, 300_000, 1_000_000}

// tasks returns the number of tasks for about so many seconds: the step with the nearest ratio.
func (s Size) tasks(perSecond float64, seconds float64) int {
	best, farthest := steps[0], math.Inf(1)
	for _, step := range steps {
		if far := math.Abs(math.Log(float64(step) / (perSecond * seconds))); step <= s.Most && far < farthest {
			best, farthest = step, far
		}
	}
	return best
}

// hold opens a transaction that keeps the server from removing old rows, as a report that runs for
// hours does.
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

// holdMySQL does the same on MySQL.
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

// holdFile reads from a file in a transaction that it keeps open, so that the write-ahead log
// cannot be reused.
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
