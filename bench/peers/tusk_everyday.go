package peers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/bench/harness"
)

// usersTable is the table that transactions of the shape InTx write to.
const usersTable = "create table users_row (id bigint primary key, note varchar(100) not null)"

// usersRow inserts one row. usersRowByMark is the same for engines with another placeholder.
const (
	usersRow       = "insert into users_row (id, note) values ($1, 'ordered')"
	usersRowByMark = "insert into users_row (id, note) values (?, 'ordered')"
)

// prepareEveryday creates what everyday tasks need besides the queue.
func (t *tuskPeer) prepareEveryday(ctx context.Context) error {
	switch t.plan.Shape {
	case harness.InTx:
		if t.pool != nil {
			_, err := t.pool.Exec(ctx, usersTable)
			return err
		}
		_, err := t.db.ExecContext(ctx, usersTable)
		return err
	case harness.Limited:
		return t.client.SetLimits(ctx, tusk.DefaultQueue, tusk.Limits{PerTenant: harness.LimitedTo})
	}
	return nil
}

// enqueueShaped stores a task of an everyday run.
func (t *tuskPeer) enqueueShaped(ctx context.Context, task harness.Task) (err error) {
	args, o := tuskArgs(task.Args()), &tusk.Options{}
	switch task.Shape {
	case harness.InTx:
		return t.enqueueInTx(ctx, task)
	case harness.Workflow:
		w := tusk.NewWorkflow()
		first := w.Task("first", args, nil)
		second := w.Task("second", tuskArgs(harness.Task{N: task.N + 1}.Args()), nil).After(first)
		w.Task("third", tuskArgs(harness.Task{N: task.N + 2}.Args()), nil).After(second)
		_, err = t.client.EnqueueWorkflow(ctx, w)
		return err
	case harness.Unique:
		o.Key = fmt.Sprint(task.N)
	case harness.Delayed:
		o.Delay = harness.Delay
	case harness.Limited:
		o.Tenant = fmt.Sprint(task.Tenant)
	}
	_, err = t.client.Enqueue(ctx, args, o)
	return err
}

func (t *tuskPeer) enqueueInTx(ctx context.Context, task harness.Task) error {
	if t.pool != nil {
		tx, err := t.pool.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback(ctx)
		if _, err := tx.Exec(ctx, usersRow, task.N); err != nil {
			return err
		}
		if _, err := t.client.EnqueueTx(ctx, tx, tuskArgs(task.Args()), nil); err != nil {
			return err
		}
		return tx.Commit(ctx)
	}
	return inSQLTx(ctx, t.db, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, usersRowByMark, task.N); err != nil {
			return err
		}
		_, err := t.client.EnqueueTx(ctx, tx, tuskArgs(task.Args()), nil)
		return err
	})
}

func inSQLTx(ctx context.Context, db *sql.DB, do func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := do(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}
