package postgres

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/migrate"
)

// The functions belong to the program that calls them. They are installed in a schema of their own, which is named
// after their text. So programs of several versions can use the same tables at the same time.
//
//go:embed functions/*.sql
var functionFiles embed.FS

// functionText returns the text of all functions, with tusk_fn in place of their schema.
var functionText = sync.OnceValue(func() string {
	return strings.Join(migrate.Texts(functionFiles, "functions/*.sql"), "")
})

// programOf returns the name of the schema of functions for tables in the given schema.
func programOf(schema, functions string) string { return schema + migrate.Mark(functions) }

// FunctionSchema returns the name of the schema in which Migrate installs the functions that
// this program calls.
func (s *Store) FunctionSchema() string { return s.program }

// dropPrograms removes the functions of programs that are no longer used.
func (s *Store) dropPrograms(ctx context.Context, term int64) error {
	return unlessBusy(s.exec(ctx, "drop_programs", term, migrate.DropAfter))
}

// seen records from time to time that this program runs, so that its functions are kept. A failure is harmless: it is
// retried long before they would be dropped.
func (s *Store) seen(ctx context.Context, c *pgxpool.Conn) {
	now, due := time.Now(), s.seenDue.Load()
	if now.UnixNano() >= due && s.seenDue.CompareAndSwap(due, now.Add(migrate.SeenEvery).UnixNano()) {
		_, _ = c.Exec(ctx, s.sql["seen"])
	}
}

// seenApart is seen on a connection of the engine's own. The caller does not wait for it.
func (s *Store) seenApart() {
	if time.Now().UnixNano() < s.seenDue.Load() || !s.apart.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer s.apart.Store(false)
		ctx, cancel := context.WithTimeout(context.Background(), spareAfter)
		defer cancel()
		_ = s.own(ctx, func(*pgxpool.Conn) error { return nil })
	}()
}

// installed returns when the functions were installed, or the zero time if they are not.
func (s *Store) installed(ctx context.Context) (time.Time, error) {
	var at *time.Time
	err := s.scan(ctx, "installed", []any{&at}, s.program)
	if err != nil && !isMissing(err) || at == nil {
		return time.Time{}, translate(unlessMissing(err))
	}
	return at.UTC(), nil
}

func unlessMissing(err error) error {
	if isMissing(err) {
		return nil
	}
	return err
}

// ownStep returns the functions as a step of Migrations. They are part of the newest version.
func (s *Store) ownStep(newest int64, at time.Time) store.Migration {
	return store.Migration{Version: newest, Name: "functions", AppliedAt: at, SQL: s.inSchema(s.functions)}
}

// install installs the functions unless they exist, and publishes them unless those of
// a newer program are published. It reports whether it installed any.
func (s *Store) install(ctx context.Context, db *sql.DB, newest int64) (fresh bool, err error) {
	err = s.inTurn(ctx, db, func(tx *sql.Tx) error {
		var at *time.Time
		if err := tx.QueryRowContext(ctx, s.sql["installed"], s.program).Scan(&at); err != nil {
			return err
		}
		if fresh = at == nil; fresh {
			if _, err := tx.ExecContext(ctx, s.sql["make_functions"]+"\n"+s.inSchema(s.functions)); err != nil {
				return err
			}
		}
		if _, err := tx.ExecContext(ctx, s.sql["add_program"], s.program, newest); err != nil {
			return err
		}
		var segments bool
		if err := tx.QueryRowContext(ctx, s.sql["has_segments"]).Scan(&segments); err != nil {
			return err
		}
		if !segments {
			if _, err := tx.ExecContext(ctx, s.sql["first_segments"]); err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, s.sql["enter_program"])
		return err
	})
	if err != nil {
		return false, fmt.Errorf("install functions: %w", err)
	}
	return fresh, nil
}

// uninstall removes the functions of programs that need a newer version of the tables than
// the given one, and publishes those of the newest program that is left. It reports whether
// it removed this program's functions.
func (s *Store) uninstall(ctx context.Context, db *sql.DB, version int64) (own bool, err error) {
	err = s.inTurn(ctx, db, func(tx *sql.Tx) error {
		var above string
		if err := tx.QueryRowContext(ctx, s.sql["programs_above"], version).Scan(&above); err != nil {
			return unlessMissing(err)
		}
		if above == "" {
			return nil
		}
		if _, err := tx.ExecContext(ctx, s.sql["withdraw"]); err != nil {
			return err
		}
		for _, name := range strings.Fields(above) {
			own = own || name == s.program
			if _, err := tx.ExecContext(ctx, "select "+name+".drop_program($1)", name); err != nil {
				return err
			}
		}
		var next string
		switch err := tx.QueryRowContext(ctx, s.sql["newest_program"]).Scan(&next); {
		case errors.Is(err, sql.ErrNoRows):
			_, err = tx.ExecContext(ctx, s.sql["withdraw_all"])
			return err
		case err != nil:
			return err
		}
		_, err := tx.ExecContext(ctx, "select "+next+".publish()")
		return err
	})
	if err != nil {
		return false, fmt.Errorf("remove functions: %w", err)
	}
	return own, nil
}

// inTurn runs do in a transaction while all other processes that migrate wait. It retries after a deadlock with
// workers, which lock in another order, and after a lock timeout.
func (s *Store) inTurn(ctx context.Context, db *sql.DB, do func(*sql.Tx) error) error {
	return patiently(ctx, func() error {
		return s.repeat(ctx, func() error { return translate(s.onceInTurn(ctx, db, do)) })
	})
}

func (s *Store) onceInTurn(ctx context.Context, db *sql.DB, do func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := s.lock(ctx, tx); err != nil {
		return err
	}
	if err := do(tx); err != nil {
		return err
	}
	return tx.Commit()
}
