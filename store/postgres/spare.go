package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	spareConns = 4               // besides the pool's
	spareIdle  = time.Minute     // after which one is closed
	spareAfter = 2 * time.Second // of waiting for the pool
)

// spare are connections for the engine's own work, made like those of the pool and
// opened only when handlers hold all of that: beats, claims and finishes must not wait
// until a handler gives one back.
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

// ownSession is a session of the engine's own, each statement on a connection by itself.
type ownSession struct{ s *Store }

func (o ownSession) exec(ctx context.Context, text string, args ...any) error {
	c, err := o.s.acquire(ctx)
	if err != nil {
		return err
	}
	defer c.Release()
	return driverSession{c}.exec(ctx, text, args...)
}

func (o ownSession) each(ctx context.Context, row func(scan func(...any) error) error, text string, args ...any) error {
	c, err := o.s.acquire(ctx)
	if err != nil {
		return err
	}
	defer c.Release()
	return driverSession{c}.each(ctx, row, text, args...)
}
