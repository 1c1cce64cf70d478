package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"time"
)

const (
	spareConns = 4               // besides the pool's, and the witness's
	spareIdle  = time.Minute     // after which one is closed
	spareAfter = 2 * time.Second // of waiting for the pool
)

// newSpare makes a small pool for the engine's own work. It connects only when handlers hold
// all of the other pool: beats, claims and finishes must not wait for a handler.
func newSpare(connector driver.Connector) *sql.DB {
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(spareConns + 1)
	db.SetMaxIdleConns(spareConns + 1)
	db.SetConnMaxIdleTime(spareIdle)
	return db
}

// conn takes a connection from the pool, or a spare one while the pool has none to give.
func (s *Store) conn(ctx context.Context) (*sql.Conn, error) {
	if s.spare == nil {
		return s.db.Conn(ctx)
	}
	if now := s.db.Stats(); now.MaxOpenConnections == 0 || now.InUse < now.MaxOpenConnections {
		within, cancel := context.WithTimeout(ctx, spareAfter)
		defer cancel()
		c, err := s.db.Conn(within)
		if err == nil || within.Err() == nil || ctx.Err() != nil {
			return c, err
		}
	}
	return s.spare.Conn(ctx)
}

// exec runs one statement outside of any transaction.
func (s *Store) exec(ctx context.Context, text string, args ...any) error {
	conn, err := s.conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	s.trips.Add(1)
	_, err = conn.ExecContext(ctx, text, args...)
	return err
}

// query asks one question outside of any transaction, and again when the connection broke
// before the first row had come.
func (s *Store) query(ctx context.Context, each func(*sql.Rows) error, text string, args ...any) error {
	for n := 1; ; n++ {
		begun, err := s.queryOnce(ctx, each, text, args...)
		if err == nil || begun || n == tries || ctx.Err() != nil || !lostConnection(err) {
			return err
		}
		pause(ctx, n)
	}
}

func (s *Store) queryOnce(
	ctx context.Context, each func(*sql.Rows) error, text string, args ...any,
) (begun bool, err error) {
	conn, err := s.conn(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	s.trips.Add(1)
	rows, err := conn.QueryContext(ctx, text, args...)
	if err != nil {
		return false, err
	}
	defer rows.Close()
	for rows.Next() {
		begun = true
		if err := each(rows); err != nil {
			return begun, err
		}
	}
	return begun, rows.Err()
}
