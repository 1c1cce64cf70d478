package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk/store"
)

var _ store.Rebaser = (*Store)(nil)

// atHome fails unless the tables belong to this server. It remembers the answer for a while.
func (s *Store) atHome(ctx context.Context, c *pgxpool.Conn) error {
	if s.known.isHome() {
		return nil
	}
	_, err := s.learnHome(ctx, driverSession{c})
	return err
}

// stay is atHome on a connection of the engine's own. It works even while handlers hold all connections of the pool.
func (s *Store) stay(ctx context.Context) error {
	if s.known.isHome() {
		return nil
	}
	_, err := s.learnHome(ctx, ownSession{s})
	return err
}

// learnHome is askHome in a session of the engine's own role, and remembers the answer.
func (s *Store) learnHome(ctx context.Context, c session) (works bool, err error) {
	if works, err = s.askHome(ctx, c); err == nil {
		s.known.setHome(works)
	}
	return works, err
}

// askHome checks whether the tables belong to this server, and fails if they do not. It reports whether the
// session's role may work.
func (s *Store) askHome(ctx context.Context, c session) (works bool, err error) {
	var home bool
	err = s.repeat(ctx, func() error {
		return s.noted(translate(c.each(ctx, func(scan func(...any) error) error { return scan(&home, &works) },
			s.sql["at_home"])))
	})
	if err != nil {
		return false, err
	}
	if !home {
		return false, store.ErrMoved
	}
	return works, nil
}

// mayWork is stay, and fails unless this role has the privileges that claims and finishes need.
func (s *Store) mayWork(ctx context.Context) error {
	if s.known.mayWork() {
		return nil
	}
	works, err := s.learnHome(ctx, ownSession{s})
	if err == nil && !works {
		err = fmt.Errorf("this role has neither usage nor select on sequence %s.beside, "+
			"without which tasks could be completed twice: use a role that tusk db roles makes", s.schema)
	}
	return err
}

// Rebase implements store.Rebaser. A restored dump or a logical copy needs it, because the transaction ids in it are
// meaningless on this server.
func (s *Store) Rebase(ctx context.Context, dry bool) (tasks int64, err error) {
	err = s.exec(ctx, "analyze")
	if err == nil && dry {
		err = s.scan(ctx, "unfinished", []any{&tasks})
	} else if err == nil {
		err = s.ownTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) (err error) {
			tasks, err = s.rebase(ctx, tx)
			return err
		})
	}
	if err != nil {
		return 0, fmt.Errorf("rebase: %w", translate(err))
	}
	return tasks, nil
}

// rebase rewrites the log. It returns the number of tasks that can be claimed.
func (s *Store) rebase(ctx context.Context, tx pgx.Tx) (tasks int64, err error) {
	do := func(texts ...string) (rows int64) {
		for _, text := range texts {
			if err == nil {
				var done pgconn.CommandTag
				done, err = tx.Exec(ctx, text)
				rows = done.RowsAffected()
			}
		}
		return rows
	}
	do(s.sql["rebase"])
	var old []string
	if err == nil {
		old, err = namesIn(tx.Query(ctx, s.sql["rebase_tables"]))
	}
	for _, table := range old {
		do(strings.ReplaceAll(s.sql["rebase_detach"], "{table}", table))
	}
	do(s.sql["first_segments"])
	for _, table := range old {
		do(strings.ReplaceAll(s.sql["rebase_ended"], "{table}", table))
	}
	do(s.sql["rebase_positions"])
	tasks = do(strings.ReplaceAll(s.sql["rebase_unfinished"], "{table}", "pg_temp.rebase"))
	do(s.sql["rebase_archive"], s.sql["rebase_rest"])
	return tasks, err
}

// SetArchiveAside takes the archive from the database, as Rebase does. A ledger that was restored needs it in the home
// ledger, which may not have been.
func (s *Store) SetArchiveAside(ctx context.Context) error {
	err := s.ownTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, s.sql["rebase_archive"])
		return err
	})
	return translate(err)
}

// namesIn returns the texts of the only column of an answer.
func namesIn(rows pgx.Rows, err error) ([]string, error) {
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
