package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"os"

	"github.com/tuskqueue/tusk/store"
)

// Tx implements store.Transactor for *sql.Tx: a transaction on the same file, best begun as an immediate one (with
// modernc.org/sqlite: _txlock=immediate in the DSN). A transaction that has only read so far becomes the writer with
// its first write. SQLite refuses that at once if anybody has written since the transaction began; retry the
// transaction from its start then. Calls fail if SQLite has rolled the transaction back after an error of any
// statement, as it does when the disk is full. While the transaction is open nobody else writes, including other users
// of the store, so keep it short.
func (s *Store) Tx(tx any) (store.Tx, error) {
	t, ok := tx.(*sql.Tx)
	if !ok || t == nil {
		return nil, fmt.Errorf("%w: a transaction of type %T, want a *sql.Tx", store.ErrUnsupported, tx)
	}
	return &userTx{store: s, session: &inside{tx: t, stmts: map[string]*sql.Stmt{}}}, nil
}

// userTx writes inside a user's transaction. Sleeping workers see its tasks once the transaction is committed.
type userTx struct {
	store   *Store
	session *inside
	checked bool
}

// Enqueue implements store.Enqueuer.
func (u *userTx) Enqueue(ctx context.Context, tasks []store.NewTask) (results []store.Enqueued, err error) {
	err = u.do(ctx, func(w *work) error {
		results, err = w.enqueue(tasks)
		return err
	})
	return results, wrap("enqueue", err)
}

// Finish implements store.Tx.
func (u *userTx) Finish(ctx context.Context, outcomes []store.Outcome) (lost []store.ID, err error) {
	err = u.do(ctx, func(w *work) error {
		lost, err = w.finish(outcomes)
		return err
	})
	return lost, wrap("finish", err)
}

// do runs one call in a savepoint, so that an error leaves nothing of the call behind. It checks for the end of the
// context only between statements: if a statement that writes is interrupted, SQLite rolls back the user's whole
// transaction, and the user's next statement would be committed by itself.
func (u *userTx) do(ctx context.Context, fn func(*work) error) error {
	if err := u.check(ctx); err != nil {
		return explain(err)
	}
	defer u.session.close()
	calm := context.WithoutCancel(ctx)
	if _, err := u.session.exec(calm, "begin"); err == nil { // otherwise there is a transaction already
		_ = u.session.tx.Rollback()
		return fmt.Errorf("%w: the transaction is over: SQLite has rolled it back after an error of another statement",
			store.ErrNotCommitted)
	}
	if _, err := u.session.exec(calm, "savepoint tusk"); err != nil {
		return explain(err)
	}
	t := &transaction{session: u.session, ctx: calm, store: u.store}
	err := t.open()
	if err == nil {
		err = t.do(ctx, fn)
	}
	if err == nil {
		err = t.stamp()
	}
	if err != nil {
		if _, gone := u.session.exec(calm, "rollback to tusk"); gone != nil {
			// This makes the user's next statement fail. Otherwise it would be committed by itself.
			_ = u.session.tx.Rollback()
			return fmt.Errorf("the whole transaction was rolled back: %w", explain(err))
		}
	}
	if _, end := u.session.exec(calm, "release tusk"); err == nil {
		err = end
	}
	if isBusy(err) {
		return fmt.Errorf("begin the transaction as an immediate one, and try it again: %w", explain(err))
	}
	return explain(err)
}

// check refuses a transaction on another file, or on one that is not in its place any more.
func (u *userTx) check(ctx context.Context) error {
	if err := u.store.inPlace(); err != nil {
		return fmt.Errorf("%w: %w", store.ErrNotCommitted, err)
	}
	if u.checked {
		return nil
	}
	if err := u.store.check(ctx); err != nil {
		return err
	}
	var path string
	if err := u.session.tx.QueryRowContext(ctx, "select file from pragma_database_list where name = 'main'").Scan(
		&path); err != nil {
		return err
	}
	if path != u.store.path {
		theirs, err1 := os.Stat(path)
		ours, err2 := os.Stat(u.store.path)
		if err1 != nil || err2 != nil || !os.SameFile(theirs, ours) {
			return fmt.Errorf("%w: the transaction is on %q, the store on %q", store.ErrUnsupported, path, u.store.path)
		}
	}
	u.checked = true
	return nil
}
