package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk/store"
)

var _ store.Rebaser = (*Store)(nil)

// atHome fails unless the tables were made on this server. It asks once of a server.
func (s *Store) atHome(ctx context.Context, c *pgxpool.Conn) error {
	if s.known.isHome() {
		return nil
	}
	_, err := s.askHome(ctx, c)
	return err
}

// askHome is atHome, and reports whether this role may work.
func (s *Store) askHome(ctx context.Context, c *pgxpool.Conn) (works bool, err error) {
	var home bool
	err = s.repeat(ctx, func() error { return s.noted(translate(c.QueryRow(ctx, s.sql["at_home"]).Scan(&home, &works))) })
	if err != nil {
		return false, err
	}
	if !home {
		return false, store.ErrMoved
	}
	s.known.setHome(works)
	return works, nil
}

// mayWork fails unless the tables were made on this server and this role has what claims and
// ends of attempts need. It goes on while handlers hold the pool's connections.
func (s *Store) mayWork(ctx context.Context) error {
	if s.known.mayWork() {
		return nil
	}
	var works bool
	err := s.own(ctx, func(c *pgxpool.Conn) (err error) {
		works, err = s.askHome(ctx, c)
		return err
	})
	if err == nil && !works {
		err = fmt.Errorf("this role has neither usage nor select on sequence %s.beside, "+
			"without which tasks could be completed twice: use a role that tusk db roles makes", s.schema)
	}
	return translate(err)
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
