package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/migrate"
)

//go:embed migrations/*.sql
var migrations embed.FS

var newest = migrate.Newest(migrations) // the version that this program needs

var schema = migrate.Schema{Files: migrations, Dialect: goose.DialectSQLite3, Table: "tusk_migration",
	Seconds: "unixepoch(tstamp)"}

// check fails unless the store is open and the schema is the one that this program needs.
func (s *Store) check(ctx context.Context) error {
	select {
	case <-s.closing:
		return ErrClosed
	default:
	}
	if s.ready.Load() {
		return nil
	}
	at, err := s.version(ctx)
	if err != nil {
		return explain(err)
	}
	if err := s.fits(ctx, at); err != nil {
		return err
	}
	s.ready.Store(true)
	return nil
}

// fits fails unless the tables of a version are those that this program needs, or newer ones that it works with. A step
// after which older programs do not work sets user_version to its own version.
func (s *Store) fits(ctx context.Context, at int64) error {
	if at <= newest {
		return migrate.Fits(at, newest)
	}
	var oldest int64
	if err := s.db.QueryRowContext(ctx, "pragma user_version").Scan(&oldest); err != nil {
		return explain(err)
	}
	return migrate.Known(oldest, newest)
}

// version returns the schema's version, or 0 if there is none. It fails if there are foreign tables with our names.
// It reads in one snapshot, because another process may be migrating.
func (s *Store) version(ctx context.Context) (at int64, err error) {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, "begin"); err != nil {
		return 0, err
	}
	defer conn.ExecContext(context.WithoutCancel(ctx), "rollback")
	tables := map[string]bool{}
	rows, err := conn.QueryContext(ctx,
		`select name from sqlite_schema where type in ('table', 'view') and name like 'tusk\_%' escape '\'`)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return 0, err
		}
		tables[name] = true
	}
	if err := rows.Err(); err != nil {
		return 0, err
	}
	if tables[schema.Table] {
		if at, err = schema.Version(ctx, conn); codeOf(err) > codeError || ctx.Err() != nil {
			return 0, cmp.Or(err, ctx.Err())
		} else if err != nil {
			return 0, fmt.Errorf("%w: %s: %w", store.ErrSchemaForeign, schema.Table, err)
		}
	}
	return at, foreign(ctx, conn, at, tables)
}

// foreign fails if there are tables with our names that none of our migrations can have created, or that lack columns
// of ours.
func foreign(ctx context.Context, conn *sql.Conn, at int64, tables map[string]bool) error {
	own, err := schema.Tables()
	if err != nil {
		return err
	}
	for _, table := range own {
		switch {
		case at == 0 && tables[table]:
			return fmt.Errorf("%w: %s: rename it, or use another file", store.ErrSchemaForeign, table)
		case at == newest && !tables[table]:
			return fmt.Errorf("%w: %s is missing: restore the file from a backup", store.ErrSchemaForeign, table)
		}
	}
	if at != newest {
		return nil
	}
	_, err = conn.ExecContext(ctx, "select id, lane, pos, state, failure, claimed_at, open from tusk_task where num = 0")
	if err != nil && strings.Contains(err.Error(), "no such column") {
		return fmt.Errorf("%w: tusk_task: %w", store.ErrSchemaForeign, err)
	}
	return err
}

// Migrate implements store.Migrator. If two processes migrate at once, one does the work. SQLite refuses the other,
// which checks again and finds the work done.
func (s *Store) Migrate(ctx context.Context, version int64) ([]store.Migration, error) {
	to, err := migrate.Target(version, newest)
	if err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	for tries := 0; ; tries++ {
		steps, err := s.migrate(ctx, to)
		if errors.Is(err, store.ErrSchemaNew) && version < 0 {
			err = s.check(ctx) // there is nothing to do if this program works with the newer schema
		}
		if err == nil || tries == 5 || ctx.Err() != nil || errors.Is(err, store.ErrSchemaForeign) ||
			errors.Is(err, store.ErrSchemaNew) {
			return steps, wrap("migrate", explain(err))
		}
		time.Sleep(time.Duration(20<<tries) * time.Millisecond)
	}
}

func (s *Store) migrate(ctx context.Context, to int64) ([]store.Migration, error) {
	at, err := s.version(ctx)
	if err != nil {
		return nil, err
	}
	s.ready.Store(false)
	return schema.Take(ctx, s.db, at, to)
}

// Migrations implements store.Migrator.
func (s *Store) Migrations(ctx context.Context) (steps []store.Migration, err error) {
	at, err := s.version(ctx)
	if err == nil {
		steps, err = schema.List(ctx, s.db, at)
	}
	return steps, wrap("migrations", explain(err))
}
