package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	spareConns = 4               // the maximum number of spare connections
	spareIdle  = time.Minute     // an idle one is closed after this time
	spareAfter = 2 * time.Second // how long to wait for the pool before a spare one is used
)

// spare holds connections for the engine's own work, which have the settings of the pool. They are opened only while
// handlers hold all connections of the pool: beats, claims, finishes and chores must not wait until a handler returns
// one. Only Enqueue and Migrations wait for the pool.
type spare struct {
	mu     sync.Mutex
	pool   *pgxpool.Pool // nil if none was needed yet
	closed bool
}

// acquire takes a connection from the pool, or a spare one if the pool has none free. From time to time it uses it to
// record that this program runs.
func (s *Store) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	c, err := s.acquireAny(ctx)
	if err == nil {
		s.seen(ctx, c)
	}
	return c, err
}

func (s *Store) acquireAny(ctx context.Context) (*pgxpool.Conn, error) {
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

// own calls do with a connection for the engine's own work.
func (s *Store) own(ctx context.Context, do func(c *pgxpool.Conn) error) error {
	c, err := s.acquire(ctx)
	if err != nil {
		return err
	}
	defer c.Release()
	return do(c)
}

// ownTx calls do in a transaction on such a connection.
func (s *Store) ownTx(ctx context.Context, o pgx.TxOptions, do func(tx pgx.Tx) error) error {
	return s.own(ctx, func(c *pgxpool.Conn) error { return pgx.BeginTxFunc(ctx, c, o, do) })
}

// exec runs a named statement.
func (s *Store) exec(ctx context.Context, name string, args ...any) error {
	return ownSession{s}.exec(ctx, s.sql[name], args...)
}

// scan reads the only row of a named statement into variables.
func (s *Store) scan(ctx context.Context, name string, into []any, args ...any) error {
	return s.own(ctx, func(c *pgxpool.Conn) error { return c.QueryRow(ctx, s.sql[name], args...).Scan(into...) })
}

// ownSession runs each statement on a connection of its own, as own does.
type ownSession struct{ s *Store }

func (o ownSession) exec(ctx context.Context, text string, args ...any) error {
	return o.s.own(ctx, func(c *pgxpool.Conn) error { return driverSession{c}.exec(ctx, text, args...) })
}

func (o ownSession) each(ctx context.Context, row func(scan func(...any) error) error, text string, args ...any) error {
	return o.s.own(ctx, func(c *pgxpool.Conn) error { return driverSession{c}.each(ctx, row, text, args...) })
}
