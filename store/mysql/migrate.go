package mysql

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/tuskqueue/tusk/store"
)

//go:embed migrations/*.sql
var migrations embed.FS

const (
	versions = "tusk_migration" // the table in which goose keeps the schema's version
	newest   = 1                // the version that this program needs
)

// checkSchema fails unless the schema is the one that this program needs.
func (s *Store) checkSchema(ctx context.Context) error {
	at, err := s.version(ctx)
	switch {
	case err != nil:
		return explain(err)
	case at == 0:
		return store.ErrSchemaMissing
	case at < newest:
		return fmt.Errorf("%w (version %d, want %d)", store.ErrSchemaOld, at, newest)
	case at > newest:
		return fmt.Errorf("%w (version %d, want %d)", store.ErrSchemaNew, at, newest)
	}
	missing, err := s.missingProcedures(ctx)
	if err != nil {
		return explain(err)
	}
	for name := range missing {
		return fmt.Errorf("%w: the procedure %s is missing (a dump leaves procedures out unless it is told --routines), or may not be executed: migrate again", store.ErrSchemaOld, name)
	}
	s.checked.Store(true)
	return nil
}

// version returns the schema's version; 0 when there is none. Tables under our
// names that are not ours are an error.
func (s *Store) version(ctx context.Context) (at int64, err error) {
	tables := map[string]bool{}
	rows, err := s.db.QueryContext(ctx, `select table_name, coalesce(engine, '') from information_schema.tables where table_schema = database() and table_type = 'BASE TABLE' and table_name like 'tusk\_%'`)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for rows.Next() {
		var name, engine string
		if err := rows.Scan(&name, &engine); err != nil {
			return 0, err
		}
		if engine != "InnoDB" && name != versions { // goose leaves that one to the server's default
			return 0, fmt.Errorf("%w: %s is stored in %s, which has no transactions: alter table %s engine = InnoDB", store.ErrUnsupported, name, engine, name)
		}
		tables[strings.ToLower(name)] = true
	}
	if err := rows.Err(); err != nil {
		return 0, err
	}
	if tables[versions] {
		const latest = "select coalesce(max(version_id), 0) from " + versions + " where is_applied"
		if err := s.db.QueryRowContext(ctx, latest).Scan(&at); err != nil {
			return 0, foreign(versions, err)
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
	own, err := ownTables()
	if err != nil {
		return err
	}
	for _, table := range own {
		switch {
		case at == 0 && tables[table] && !tables[versions]:
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

// ownTables returns the names of the tables that the newest schema has.
func ownTables() (tables []string, err error) {
	ups, err := ups()
	for _, up := range ups {
		for _, line := range strings.Split(up, "\n") {
			if rest, ok := strings.CutPrefix(line, "create table if not exists "); ok {
				table, _, _ := strings.Cut(rest, " ")
				tables = append(tables, table)
			}
		}
	}
	return tables, err
}

// ups returns what leads to the newest schema.
func ups() (texts []string, err error) {
	names, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		text, err := migrations.ReadFile(name)
		if err != nil {
			return nil, err
		}
		up, _, _ := strings.Cut(string(text), "-- +goose Down")
		texts = append(texts, up)
	}
	return texts, nil
}

// Migrate implements store.Migrator. Of several processes that migrate at once
// one does the work, and the others wait for it and find it done. The server
// commits after every step, and every step can be repeated: a migration that was
// killed is simply begun again.
func (s *Store) Migrate(ctx context.Context, version int64) (steps []store.Migration, err error) {
	if version < 0 {
		version = newest
	}
	if version > newest {
		return nil, fmt.Errorf("migrate: there is no version %d, the newest is %d", version, newest)
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
		if err := conn.QueryRowContext(ctx, "select get_lock(concat('tusk:migrate:', left(sha2(database(), 256), 16)), 1)").Scan(&got); err != nil {
			return err
		}
		if got.Int64 == 1 {
			break
		}
	}
	err = fn()
	_, end := conn.ExecContext(context.WithoutCancel(ctx), "do release_lock(concat('tusk:migrate:', left(sha2(database(), 256), 16)))")
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
	if at > newest {
		return nil, fmt.Errorf("%w (version %d, want %d)", store.ErrSchemaNew, at, newest)
	}
	if at == version {
		return nil, nil
	}
	provider, err := s.provider()
	if err != nil {
		return nil, err
	}
	s.checked.Store(false)
	var results []*goose.MigrationResult
	if version > at {
		results, err = provider.UpTo(ctx, version)
	} else {
		results, err = provider.DownTo(ctx, version)
	}
	if err != nil {
		return nil, err
	}
	steps := make([]store.Migration, len(results))
	for i, r := range results {
		steps[i] = step(r.Source)
		if r.Direction == "up" {
			steps[i].AppliedAt = time.Now().UTC()
		}
	}
	return steps, nil
}

func (s *Store) provider() (*goose.Provider, error) {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(goose.DialectMySQL, s.db, files, goose.WithTableName(versions),
		goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()))
}

// Migrations implements store.Migrator.
func (s *Store) Migrations(ctx context.Context) ([]store.Migration, error) {
	at, err := s.version(ctx)
	if err != nil {
		return nil, wrap("migrations", err)
	}
	provider, err := s.provider()
	if err != nil {
		return nil, wrap("migrations", err)
	}
	var steps []store.Migration
	for _, source := range provider.ListSources() {
		one := step(source)
		if source.Version <= at {
			var seconds float64
			err := s.db.QueryRowContext(ctx, "select unix_timestamp(tstamp) from "+versions+" where version_id = ? order by id desc limit 1", source.Version).Scan(&seconds)
			if err != nil {
				return nil, wrap("migrations", err)
			}
			one.AppliedAt = time.Unix(int64(seconds), 0).UTC()
		}
		steps = append(steps, one)
	}
	return steps, nil
}

func step(source *goose.Source) store.Migration {
	text, _ := migrations.ReadFile("migrations/" + path.Base(source.Path)) // goose has just read it
	_, name, _ := strings.Cut(strings.TrimSuffix(path.Base(source.Path), ".sql"), "_")
	return store.Migration{Version: source.Version, Name: name, SQL: string(text)}
}
