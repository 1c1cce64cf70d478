package postgres

import (
	"context"
	"errors"
	"fmt"
)

// ErrMoved says that the tables came from another server, by a dump or a
// logical copy: their transaction ids mean nothing here.
var ErrMoved = errors.New("the database was restored from another server: stop all workers and run tusk db rebase")

// atHome fails unless the tables were made on this server. It asks once.
func (s *Store) atHome(ctx context.Context) error {
	if s.home.Load() {
		return nil
	}
	var home bool
	if err := s.pool.QueryRow(ctx, s.sql["at_home"]).Scan(&home); err != nil {
		return translate(err)
	}
	if !home {
		return ErrMoved
	}
	s.home.Store(true)
	return nil
}

// Rebase makes a restored database usable on its new server and returns how
// many tasks can be claimed. Tasks that were running at the time of the copy
// are available again.
func (s *Store) Rebase(ctx context.Context) (open int64, err error) {
	if err := s.pool.QueryRow(ctx, s.sql["rebase"]).Scan(&open); err != nil {
		return 0, fmt.Errorf("rebase: %w", translate(err))
	}
	return open, nil
}
