package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"time"
)

const (
	spareConns = 4 // one more is for the witness
	// After this time an idle connection is closed.
	spareIdle = time.Minute
	// How long to wait for the pool first.
	spareAfter = 2 * time.Second
)

// newSpare creates a small pool for the engine's own work. It connects only when handlers hold all connections of
// the other pool: beats, claims and finishes must not wait for a handler.
func newSpare(connector driver.Connector) *sql.DB {
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(spareConns + 1)
	db.SetMaxIdleConns(spareConns + 1)
	db.SetConnMaxIdleTime(spareIdle)
	return db
}

// conn takes a connection from the pool, or a spare one if the pool has none.
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
	if _, err = conn.ExecContext(ctx, text, args...); demoted(err) {
		drop(conn)
	}
	return err
}

// query runs one query outside of any transaction, and repeats it if the connection broke before the first row.
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
