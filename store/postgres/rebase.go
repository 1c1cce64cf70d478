package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/tuskqueue/tusk/store"
)

var _ store.Rebaser = (*Store)(nil)

// asker is a connection, or the pool.
type asker interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// atHome fails unless the tables were made on this server. It asks once of a server.
func (s *Store) atHome(ctx context.Context, c asker) error {
	if s.known.isHome() {
		return nil
	}
	var home bool
	err := s.repeat(ctx, func() error { return s.noted(translate(c.QueryRow(ctx, s.sql["at_home"]).Scan(&home))) })
	if err != nil {
		return err
	}
	if !home {
		return store.ErrMoved
	}
	s.known.setHome()
	return nil
}

// mayWork is atHome on a connection that the engine's own work gets even while handlers hold
// the pool's.
func (s *Store) mayWork(ctx context.Context) error {
	if s.known.isHome() {
		return nil
	}
	c, err := s.acquire(ctx)
	if err != nil {
		return translate(err)
	}
	defer c.Release()
	return s.atHome(ctx, c)
}

// Rebase implements store.Rebaser, for a dump or a logical copy: the transaction
// ids in it mean nothing here.
func (s *Store) Rebase(ctx context.Context, dry bool) (tasks int64, err error) {
	name := "rebase"
	if dry {
		name = "unfinished"
	}
	if err := s.exec(ctx, "analyze"); err != nil {
		return 0, fmt.Errorf("rebase: %w", translate(err))
	}
	if err := s.scan(ctx, name, []any{&tasks}); err != nil {
		return 0, fmt.Errorf("rebase: %w", translate(err))
	}
	return tasks, nil
}
