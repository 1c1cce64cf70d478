package postgres

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tuskqueue/tusk/store"
)

var _ store.Transactor = (*Store)(nil)

// session is where a statement runs: the pool, or a transaction.
type session interface {
	exec(ctx context.Context, text string, args ...any) error
	each(ctx context.Context, row func(scan func(...any) error) error, text string, args ...any) error
}

// Tx implements store.Transactor for pgx.Tx, and for *sql.Tx of the driver
// pgx/v5/stdlib. The transaction must be READ COMMITTED, which is the default.
func (s *Store) Tx(tx any) (store.Tx, error) {
	switch tx := tx.(type) {
	case pgx.Tx:
		if c := tx.Conn(); c != nil {
			s.known.meet(c)
		}
		return &userTx{s, driverSession{tx}}, nil
	case *sql.Tx:
		return &userTx{s, sqlSession{tx}}, nil
	}
	return nil, fmt.Errorf("transaction of type %T: %w: want pgx.Tx, or *sql.Tx of pgx/v5/stdlib", tx,
		store.ErrUnsupported)
}

// Session runs statements in a transaction, possibly on another node. Each calls row for each row of the answer. The
// scan function reads into variables of the types string, int and bool.
type Session interface {
	Exec(ctx context.Context, text string, args ...any) error
	Each(ctx context.Context, row func(scan func(...any) error) error, text string, args ...any) error
}

// TxOver is Tx for a transaction that a Session reaches.
func (s *Store) TxOver(c Session) store.Tx { return &userTx{s, overSession{c}} }

type overSession struct{ c Session }

func (o overSession) exec(ctx context.Context, text string, args ...any) error {
	return o.c.Exec(ctx, text, args...)
}

func (o overSession) each(
	ctx context.Context, row func(scan func(...any) error) error, text string, args ...any,
) error {
	return o.c.Each(ctx, row, text, args...)
}

// userTx is a transaction that the user began.
type userTx struct {
	s *Store
	session
}

// Enqueue implements store.Enqueuer.
func (u *userTx) Enqueue(ctx context.Context, tasks []store.NewTask) ([]store.Enqueued, error) {
	if len(tasks) == 0 {
		return nil, nil
	}
	if err := u.stay(ctx); err != nil {
		return nil, fmt.Errorf("enqueue: %w", err)
	}
	return u.enqueue(ctx, tasks)
}

// enqueue is Enqueue after stay.
func (u *userTx) enqueue(ctx context.Context, tasks []store.NewTask) ([]store.Enqueued, error) {
	have := surveyOf(tasks)
	if have.lined {
		u.s.learnLineApart()
	}
	news := u.s.herald(tasks, have, unsure)
	if err := u.s.nameLanes(ctx, u.session, have, false); err != nil {
		news.drop()
		return nil, fmt.Errorf("enqueue: %w", err)
	}
	results, err := u.s.enqueue(ctx, u.session, tasks, have)
	if err != nil {
		news.drop()
		return nil, fmt.Errorf("enqueue: %w", err)
	}
	u.s.ringAfter(news)
	return results, nil
}

// stay is Store.stay in the transaction, because another connection may be available only after the transaction has
// ended. The rights of the transaction's role may differ from those of the engine's own.
func (u *userTx) stay(ctx context.Context) error {
	u.s.seenApart()
	if u.s.known.isHome() {
		return nil
	}
	_, err := u.s.askHome(ctx, u.session)
	if err == nil {
		u.s.known.setHome(false)
	}
	return err
}

// Finish implements store.Tx.
func (u *userTx) Finish(ctx context.Context, outcomes []store.Outcome) (lost []store.ID, err error) {
	if err = u.stay(ctx); err == nil {
		lost, err = u.s.finishTx(ctx, u.session, outcomes)
	}
	if err != nil {
		return nil, fmt.Errorf("finish: %w", err)
	}
	return lost, nil
}

// driverSession is a pool, a connection or a transaction of the driver pgx.
type driverSession struct {
	c interface {
		Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
		Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	}
}

func (d driverSession) exec(ctx context.Context, text string, args ...any) error {
	_, err := d.c.Exec(ctx, text, args...)
	return err
}

func (d driverSession) each(
	ctx context.Context, row func(scan func(...any) error) error, text string, args ...any,
) error {
	rows, err := d.c.Query(ctx, text, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	return scanEach(rows, row)
}

// sqlSession is a transaction of database/sql.
type sqlSession struct{ tx *sql.Tx }

func (d sqlSession) exec(ctx context.Context, text string, args ...any) error {
	_, err := d.tx.ExecContext(ctx, text, args...)
	return err
}

func (d sqlSession) each(ctx context.Context, row func(scan func(...any) error) error, text string, args ...any) error {
	rows, err := d.tx.QueryContext(ctx, text, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	return scanEach(rows, row)
}

// scanEach reads the rows of either driver.
func scanEach(rows interface {
	Next() bool
	Scan(into ...any) error
	Err() error
}, row func(scan func(...any) error) error) error {
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}
