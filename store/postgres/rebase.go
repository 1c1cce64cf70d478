package postgres

import (
	"context"
	"fmt"

	"github.com/tuskqueue/tusk/store"
)

var _ store.Rebaser = (*Store)(nil)

// atHome fails unless the tables were made on this server. It asks once.
func (s *Store) atHome(ctx context.Context) error {
	if s.home.Load() {
		return nil
	}
	var home bool
	err := s.repeat(ctx, func() error { return translate(s.pool.QueryRow(ctx, s.sql["at_home"]).Scan(&home)) })
	if err != nil {
		return err
	}
	if !home {
		return store.ErrMoved
	}
	s.home.Store(true)
	return nil
}

// Rebase implements store.Rebaser, for a dump or a logical copy: the transaction
// ids in it mean nothing here.
func (s *Store) Rebase(ctx context.Context, dry bool) (tasks int64, err error) {
	name := "rebase"
	if dry {
		name = "unfinished"
	}
	if err := s.pool.QueryRow(ctx, s.sql[name]).Scan(&tasks); err != nil {
		return 0, fmt.Errorf("rebase: %w", translate(err))
	}
	return tasks, nil
}
