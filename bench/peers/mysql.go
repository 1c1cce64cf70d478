package peers

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/tuskqueue/tusk/bench/harness"
	"github.com/tuskqueue/tusk/store/mysql"
)

var mysqlArticle = []Contender{{
	Name: "article: owner column", Server: MySQL, Version: statementsOnly, New: func(string) harness.Peer {
		return &ownedPeer{}
	},
	Settings: "rows inserted in batches; two connections that each claim a batch with one update, read it, and mark it " +
		"as done with one more; what a deadlock rolled back is done again", Cannot: []string{"scheduled", "tenants"},
}}

//go:embed mysql.sql
var ownedFile string

var ownedSQL = sections(ownedFile)

// ownedPeer claims a batch of tasks under the id of its connection.
type ownedPeer struct {
	plan harness.Plan
	db   *sql.DB
	free chan *sql.Conn // their ids are the owners of what they claim
}

const ownedLoops = 2

func (a *ownedPeer) Open(ctx context.Context, p harness.Plan) (err error) {
	a.plan = p
	if a.db, _, err = mysql.Pool(p.Target); err != nil {
		return err
	}
	a.db.SetMaxOpenConns(8)
	a.db.SetMaxIdleConns(8)
	if _, err = a.db.ExecContext(ctx, ownedSQL["table"]); err != nil {
		return err
	}
	a.free = make(chan *sql.Conn, ownedLoops)
	for range ownedLoops {
		c, err := a.db.Conn(ctx)
		if err != nil {
			return err
		}
		a.free <- c
	}
	return nil
}

func (a *ownedPeer) Enqueue(ctx context.Context, tasks []harness.Task) error {
	values := make([]any, len(tasks))
	for i, t := range tasks {
		values[i] = t.JSON()
	}
	rows := strings.TrimSuffix(strings.Repeat("(?),", len(tasks)), ",")
	return untilDone(ctx, a.db, ownedSQL["produce"]+" "+rows, values...)
}

// untilDone repeats a statement while the server rolls it back because of a deadlock.
func untilDone(
	ctx context.Context, on interface {
		ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	}, statement string, args ...any,
) error {
	for {
		_, err := on.ExecContext(ctx, statement, args...)
		var answer *driver.MySQLError
		if !errors.As(err, &answer) || answer.Number != deadlock {
			return err
		}
	}
}

const deadlock = 1213

func (a *ownedPeer) Work(ctx context.Context, handle func(n int)) error {
	loops := consumers{loops: min(ownedLoops, a.plan.Workers), workers: a.plan.Workers, pause: 2 * time.Millisecond}
	return loops.run(ctx, a.plan.Work == 0, a.claim, handle)
}

func (a *ownedPeer) claim(ctx context.Context) (numbers []int, finish func(context.Context) error, err error) {
	ctx = context.WithoutCancel(ctx) // otherwise the driver would close the connection, whose id owns the tasks
	c := <-a.free
	back := sync.OnceFunc(func() { a.free <- c })
	defer func() {
		if len(numbers) == 0 || err != nil {
			back()
		}
	}()
	if err := untilDone(ctx, c, fmt.Sprintf(ownedSQL["claim"], fetchSize(a.plan))); err != nil {
		return nil, nil, err
	}
	rows, err := c.QueryContext(ctx, ownedSQL["read"])
	if err != nil {
		return nil, nil, err
	}
	defer rows.Close()
	var ids []string
	for rows.Next() {
		var id string
		var args []byte
		if err := rows.Scan(&id, &args); err != nil {
			return nil, nil, err
		}
		n, err := harness.Number(args)
		if err != nil {
			return nil, nil, err
		}
		ids, numbers = append(ids, id), append(numbers, n)
	}
	finish = func(ctx context.Context) error {
		defer back()
		return untilDone(ctx, c, fmt.Sprintf(ownedSQL["done"], strings.Join(ids, ",")))
	}
	return numbers, finish, rows.Err()
}

func (a *ownedPeer) Left(ctx context.Context) (n int, err error) {
	err = a.db.QueryRowContext(ctx, ownedSQL["left"]).Scan(&n)
	return n, err
}

func (a *ownedPeer) Close() error { return a.db.Close() }
