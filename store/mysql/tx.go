package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/tuskqueue/tusk/store"
)

// Tx implements store.Transactor for *sql.Tx: a transaction on the same database, preferably at READ COMMITTED. At
// MySQL's default, REPEATABLE READ, it also works, but may lock more than it needs. Between two calls with keys that
// come in another order elsewhere, the server may end the transaction with a deadlock (1213); retry the transaction
// from its start then.
func (s *Store) Tx(tx any) (store.Tx, error) {
	t, ok := tx.(*sql.Tx)
	if !ok || t == nil {
		return nil, fmt.Errorf("%w: a transaction of type %T, want a *sql.Tx", store.ErrUnsupported, tx)
	}
	if pool := s.db.Stats(); s.spare == nil && pool.MaxOpenConnections == 1 && pool.InUse == 1 {
		return nil, fmt.Errorf("%w: the transaction has the only connection of its pool: allow two with SetMaxOpenConns, "+
			"or give the engine spare ones (mysql.Options.Spare)", store.ErrUnsupported)
	}
	return &userTx{s, t}, nil
}

// userTx writes inside a user's transaction.
type userTx struct {
	store *Store
	tx    *sql.Tx
}

// Enqueue implements store.Enqueuer.
func (u *userTx) Enqueue(ctx context.Context, tasks []store.NewTask) (results []store.Enqueued, err error) {
	if len(tasks) == 0 {
		return nil, nil
	}
	err = u.do(ctx, func(w *work) error {
		results, err = w.enqueue(tasks)
		return err
	})
	return results, wrap("enqueue", err)
}

// Finish implements store.Tx.
func (u *userTx) Finish(ctx context.Context, outcomes []store.Outcome) (lost []store.ID, err error) {
	if len(outcomes) == 0 {
		return nil, nil
	}
	careful := false
	err = u.do(ctx, func(w *work) error {
		lost, err = w.finish(outcomes, careful)
		careful = true // for the next try
		return err
	})
	return lost, wrap("finish", err)
}

// do runs one call in a savepoint, so that an error undoes the whole call. If the server has ended the transaction,
// after a deadlock, there is no savepoint to go back to: each statement, including the user's, would be committed by
// itself.
//
// do does not retry what the server rolled back, because that is up to the user, whose transaction it was.
func (u *userTx) do(ctx context.Context, fn func(w *work) error) error {
	if err := u.store.ready(ctx); err != nil {
		return err
	}
	if _, err := u.tx.ExecContext(ctx, "savepoint tusk"); err != nil {
		return err
	}
	calm := context.WithoutCancel(ctx)
	if _, gone := u.tx.ExecContext(calm, "rollback to savepoint tusk"); gone != nil {
		_ = u.tx.Rollback()
		return fmt.Errorf("%w: the transaction is over: the server has ended it after an error of another statement: "+
			"try it again from its start: %s", store.ErrNotCommitted, gone)
	}
	var err error
	for range tries {
		w := &work{session: session{store: u.store, ctx: ctx, on: u.tx}, user: true}
		if err = fn(w); err == nil {
			if err = w.settle(); err == nil {
				err = w.flush()
			}
			err = w.judge(err)
		}
		if err == nil {
			for _, fn := range w.after {
				fn()
			}
			break
		}
		if _, gone := u.tx.ExecContext(calm, "rollback to savepoint tusk"); gone != nil {
			_ = u.tx.Rollback() // the user gets an error at the next statement
			return err          // the first error says more
		}
		if codeOf(err) == codeDuplicate { // another process has the same places
			u.store.places.renew()
		} else if !errors.Is(err, errAgain) && !errors.Is(err, errCareful) {
			break
		}
	}
	if _, end := u.tx.ExecContext(calm, "release savepoint tusk"); err == nil {
		err = end
	}
	return err
}
