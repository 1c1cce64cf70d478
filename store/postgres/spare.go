package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	spareConns = 4               // besides the pool's
	spareIdle  = time.Minute     // after which one is closed
	spareAfter = 2 * time.Second // of waiting for the pool
)

// spare are connections for the engine's own work, made like those of the pool and
// opened only when handlers hold all of that: beats, claims, finishes and chores must not
// wait until a handler gives one back. Of what the engine asks, Enqueue and Migrate alone
// go by the pool.
type spare struct {
	mu     sync.Mutex
	pool   *pgxpool.Pool // nil: none was needed yet
	closed bool
}

// acquire takes a connection from the pool, or a spare one while that has none to give.
func (s *Store) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	if now := s.pool.Stat(); now.AcquiredConns() < now.MaxConns() {
		within, cancel := context.WithTimeout(ctx, spareAfter)
		defer cancel()
		c, err := s.pool.Acquire(within)
		if err == nil || within.Err() == nil || ctx.Err() != nil {
			return c, err
		}
	}
	pool, err := s.spare.open(s.pool)
	if err != nil {
		return nil, err
	}
	return pool.Acquire(ctx)
}

func (p *spare) open(like *pgxpool.Pool) (*pgxpool.Pool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pool != nil {
		return p.pool, nil
	}
	if p.closed {
		return like, nil
	}
	config := like.Config()
	config.MaxConns, config.MinConns, config.MinIdleConns, config.MaxConnIdleTime = spareConns, 0, 0, spareIdle
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err == nil {
		p.pool = pool
	}
	return pool, err
}

func (p *spare) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pool != nil {
		p.pool.Close()
	}
	p.pool, p.closed = nil, true
}

// own does something on a connection of the engine's own.
func (s *Store) own(ctx context.Context, do func(c *pgxpool.Conn) error) error {
	c, err := s.acquire(ctx)
	if err != nil {
		return err
	}
	defer c.Release()
	return do(c)
}

// ownTx does something in a transaction of the engine's own.
func (s *Store) ownTx(ctx context.Context, o pgx.TxOptions, do func(tx pgx.Tx) error) error {
	return s.own(ctx, func(c *pgxpool.Conn) error { return pgx.BeginTxFunc(ctx, c, o, do) })
}

// exec runs a named statement.
func (s *Store) exec(ctx context.Context, name string, args ...any) error {
	return ownSession{s}.exec(ctx, s.sql[name], args...)
}

// scan reads the one row of a named statement into what is pointed to.
func (s *Store) scan(ctx context.Context, name string, into []any, args ...any) error {
	return s.own(ctx, func(c *pgxpool.Conn) error { return c.QueryRow(ctx, s.sql[name], args...).Scan(into...) })
}

// ownSession is a session of the engine's own, each statement on a connection by itself.
type ownSession struct{ s *Store }

func (o ownSession) exec(ctx context.Context, text string, args ...any) error {
	return o.s.own(ctx, func(c *pgxpool.Conn) error { return driverSession{c}.exec(ctx, text, args...) })
}

func (o ownSession) each(ctx context.Context, row func(scan func(...any) error) error, text string, args ...any) error {
	return o.s.own(ctx, func(c *pgxpool.Conn) error { return driverSession{c}.each(ctx, row, text, args...) })
}
