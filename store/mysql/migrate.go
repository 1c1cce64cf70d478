package mysql

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"strings"

	"github.com/pressly/goose/v3"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/migrate"
)

//go:embed migrations/*.sql
var migrations embed.FS

const newest = 2 // the version that this program needs

var schema = migrate.Schema{Files: migrations, Dialect: goose.DialectMySQL, Table: "tusk_migration",
	Seconds: "unix_timestamp(tstamp)", Newest: newest}

// checkSchema fails unless the schema is the one that this program needs.
func (s *Store) checkSchema(ctx context.Context) error {
	at, err := s.version(ctx)
	if err != nil {
		return explain(err)
	}
	if err := migrate.Fits(at, newest); err != nil {
		return err
	}
	missing, err := s.missingProcedures(ctx)
	if err != nil {
		return explain(err)
	}
	for name := range missing {
		return fmt.Errorf(
			"%w: the procedure %s is missing (a dump leaves procedures out unless it is told --routines), or may not be "+
				"executed: migrate again", store.ErrSchemaOld, name)
	}
	s.checked.Store(true)
	return nil
}

// version returns the schema's version; 0 when there is none. Tables under our
// names that are not ours are an error.
func (s *Store) version(ctx context.Context) (at int64, err error) {
	tables := map[string]bool{}
	rows, err := s.db.QueryContext(ctx,
		`select table_name, coalesce(engine, '')
		from information_schema.tables
		where table_schema = database() and table_type = 'BASE TABLE' and table_name like 'tusk\_%'`)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for rows.Next() {
		var name, engine string
		if err := rows.Scan(&name, &engine); err != nil {
			return 0, err
		}
		if engine != "InnoDB" && name != schema.Table { // goose leaves that one to the server's default
			return 0, fmt.Errorf("%w: %s is stored in %s, which has no transactions: alter table %s engine = InnoDB",
				store.ErrUnsupported, name, engine, name)
		}
		tables[strings.ToLower(name)] = true
	}
	if err := rows.Err(); err != nil {
		return 0, err
	}
	if tables[schema.Table] {
		if at, err = schema.Version(ctx, s.db); err != nil {
			return 0, foreign(schema.Table, err)
		}
	}
	return at, s.checkTables(ctx, at, tables)
}

func foreign(table string, err error) error {
	if codeOf(err) == codeColumnMissing {
		return fmt.Errorf("%w: %s: %w", store.ErrSchemaForeign, table, err)
	}
	return err
}

// checkTables fails when there are tables under our names that no migration of
// ours can have made, or that lack columns which ours have.
func (s *Store) checkTables(ctx context.Context, at int64, tables map[string]bool) error {
	own, err := schema.Tables()
	if err != nil {
		return err
	}
	for _, table := range own {
		switch {
		case at == 0 && tables[table] && !tables[schema.Table]:
			return fmt.Errorf("%w: %s: rename it, or use another database", store.ErrSchemaForeign, table)
		case at == newest && !tables[table]:
			return fmt.Errorf("%w: %s is missing: restore the database from a backup", store.ErrSchemaForeign, table)
		}
	}
	if at != newest {
		return nil
	}
	rows, err := s.db.QueryContext(ctx, "select "+columns+" from tusk_task where place = 0")
	if err != nil {
		return foreign("tusk_task", err)
	}
	return rows.Close()
}

// Migrate implements store.Migrator. Of several processes that migrate at once
// one does the work, and the others wait for it and find it done. The server
// commits after every step, and every step can be repeated: a migration that was
// killed is simply begun again.
func (s *Store) Migrate(ctx context.Context, version int64) (steps []store.Migration, err error) {
	if version, err = migrate.Target(version, newest); err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	err = s.alone(ctx, func() error {
		steps, err = s.migrate(ctx, version)
		if err == nil && version == newest {
			err = errors.Join(s.makeProcedures(ctx), s.makeDays(ctx))
		}
		return err
	})
	return steps, wrap("migrate", err)
}

// alone runs fn while no other process migrates this database.
func (s *Store) alone(ctx context.Context, fn func() error) error {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	for {
		var got sql.NullInt64
		if err := conn.QueryRowContext(ctx, "select get_lock(concat('tusk:migrate:', left(sha2(database(), 256), 16)), 1)").
			Scan(&got); err != nil {
			return err
		}
		if got.Int64 == 1 {
			break
		}
	}
	err = fn()
	_, end := conn.ExecContext(context.WithoutCancel(ctx),
		"do release_lock(concat('tusk:migrate:', left(sha2(database(), 256), 16)))")
	if end != nil {
		abandon(ctx, conn)
	}
	return errors.Join(err, end)
}

func (s *Store) migrate(ctx context.Context, version int64) ([]store.Migration, error) {
	at, err := s.version(ctx)
	if err != nil {
		return nil, err
	}
	s.checked.Store(false)
	return schema.Take(ctx, s.db, at, version)
}

// Migrations implements store.Migrator.
func (s *Store) Migrations(ctx context.Context) (steps []store.Migration, err error) {
	at, err := s.version(ctx)
	if err == nil {
		steps, err = schema.List(ctx, s.db, at)
	}
	return steps, wrap("migrations", err)
}
