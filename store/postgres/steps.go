package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tuskqueue/tusk/store"
)

// step is one of several statements that are sent in one round trip and run in one transaction.
type step struct {
	text string
	args []any
	row  func(raw [][]byte) error // reads a row of the answer; nil if the answer is ignored
}

// do returns a named statement as a step.
func (s *Store) do(name string, args ...any) step { return step{text: s.sql[name], args: args} }

// into returns the step with a function that reads its answer.
func (one step) into(row func(raw [][]byte) error) step {
	one.row = row
	return one
}

// pinned prepends a step that makes the plans of the others independent of statistics, which are outdated for tables
// that grow fast. The planner then uses neither sequential nor bitmap scans where there is an index.
func (s *Store) pinned(steps ...step) []step { return append([]step{s.do("pin")}, steps...) }

// inOrder is pinned for steps that read in the order of an index.
func (s *Store) inOrder(steps ...step) []step { return append([]step{s.do("pin_order")}, steps...) }

// read sends steps in one transaction. It repeats them if the server rolls the transaction back before a row of an
// answer has arrived. A step may write if it is idempotent.
func (s *Store) read(ctx context.Context, steps []step) error {
	began := false // a step must not receive the same rows twice
	for i := range steps {
		if row := steps[i].row; row != nil {
			steps[i].row = func(raw [][]byte) error {
				began = true
				return row(raw)
			}
		}
	}
	return s.repeat(ctx, func() error {
		err := s.takeOnce(ctx, steps)
		if began && errors.Is(err, errRolledBack) {
			return fmt.Errorf("%w: the answer broke off: %v", store.ErrUnavailable, err)
		}
		return err
	})
}

// write sends steps that write. Each sees what was committed before it began.
func (s *Store) write(ctx context.Context, steps []step) error {
	return s.read(ctx, append(append([]step{{text: "begin isolation level read committed"}}, steps...),
		step{text: "commit"}))
}

func (s *Store) takeOnce(ctx context.Context, steps []step) error {
	s.trips.Add(1)
	c, err := s.acquire(ctx)
	if err != nil {
		return translate(err)
	}
	defer c.Release() // closes the connection if its transaction is still open
	var batch pgx.Batch
	for _, one := range steps {
		queued := batch.Queue(one.text, one.args...)
		if row := one.row; row != nil {
			queued.Query(func(rows pgx.Rows) error { return eachRow(rows, row) })
		}
	}
	err = c.SendBatch(ctx, &batch).Close()
	if err != nil && ctx.Err() == nil && c.Conn().PgConn().TxStatus() != 'I' {
		within, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, _ = c.Exec(within, "rollback")
	}
	return s.noted(translate(err))
}
