package sqlite

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/tuskqueue/tusk/store"
)

//go:embed migrations/*.sql
var migrations embed.FS

const (
	versions = "tusk_migration" // the table in which goose keeps the schema's version
	newest   = 5                // the version that this program needs
)

// check fails unless the store is open and the schema the one that this program
// needs.
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
	s.ready.Store(true)
	return nil
}

// version returns the schema's version; 0 when there is none. Tables under our
// names that are not ours are an error.
func (s *Store) version(ctx context.Context) (at int64, err error) {
	tables := map[string]bool{}
	rows, err := s.db.QueryContext(ctx, `select name from sqlite_schema where type in ('table', 'view') and name like 'tusk\_%' escape '\'`)
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
	if tables[versions] {
		const latest = "select coalesce(max(version_id), 0) from " + versions + " where is_applied"
		if err := s.db.QueryRowContext(ctx, latest).Scan(&at); err != nil {
			if codeOf(err) > codeBusy {
				return 0, err
			}
			return 0, fmt.Errorf("%w: %s: %w", store.ErrSchemaForeign, versions, err)
		}
	}
	return at, s.foreign(ctx, at, tables)
}

// foreign fails when there are tables under our names that no migration of ours
// can have made, or that lack columns which ours have.
func (s *Store) foreign(ctx context.Context, at int64, tables map[string]bool) error {
	own, err := ownTables()
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
	_, err = s.db.ExecContext(ctx, "select id, lane, pos, state, failure, claimed_at, needed from tusk_task where num = 0")
	if err != nil && strings.Contains(err.Error(), "no such column") {
		return fmt.Errorf("%w: tusk_task: %w", store.ErrSchemaForeign, err)
	}
	return err
}

// ownTables returns the names of the tables that the newest schema has.
func ownTables() ([]string, error) {
	files, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	var tables []string
	for _, file := range files {
		text, err := migrations.ReadFile(file)
		if err != nil {
			return nil, err
		}
		up, _, _ := strings.Cut(string(text), "-- +goose Down")
		for _, line := range strings.Split(up, "\n") {
			if rest, ok := strings.CutPrefix(line, "create table "); ok {
				name, _, _ := strings.Cut(rest, " ")
				tables = append(tables, name)
			}
			if rest, ok := strings.CutPrefix(line, "drop table "); ok {
				tables = slices.DeleteFunc(tables, func(name string) bool { return name == strings.TrimSuffix(rest, ";") })
			}
		}
	}
	return tables, nil
}

func (s *Store) provider() (*goose.Provider, error) {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(goose.DialectSQLite3, s.db, files, goose.WithTableName(versions),
		goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()))
}

// Migrate implements store.Migrator. Of two processes that migrate at once one
// does the work; the other, refused by SQLite, looks again and finds it done.
func (s *Store) Migrate(ctx context.Context, version int64) ([]store.Migration, error) {
	if version < 0 {
		version = newest
	}
	if version > newest {
		return nil, fmt.Errorf("migrate: there is no version %d, the newest is %d", version, newest)
	}
	for tries := 0; ; tries++ {
		steps, err := s.migrate(ctx, version)
		if err == nil || tries == 5 || ctx.Err() != nil || errors.Is(err, store.ErrSchemaForeign) || errors.Is(err, store.ErrSchemaNew) {
			return steps, wrap("migrate", explain(err))
		}
		time.Sleep(time.Duration(20<<tries) * time.Millisecond)
	}
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
	s.ready.Store(false)
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

// Migrations implements store.Migrator.
func (s *Store) Migrations(ctx context.Context) ([]store.Migration, error) {
	at, err := s.version(ctx)
	if err != nil {
		return nil, fmt.Errorf("migrations: %w", explain(err))
	}
	provider, err := s.provider()
	if err != nil {
		return nil, fmt.Errorf("migrations: %w", err)
	}
	var steps []store.Migration
	for _, source := range provider.ListSources() {
		one := step(source)
		if source.Version <= at {
			if one.AppliedAt, err = s.appliedAt(ctx, source.Version); err != nil {
				return nil, fmt.Errorf("migrations: %w", explain(err))
			}
		}
		steps = append(steps, one)
	}
	return steps, nil
}

func (s *Store) appliedAt(ctx context.Context, version int64) (time.Time, error) {
	var seconds int64
	err := s.db.QueryRowContext(ctx, "select unixepoch(tstamp) from "+versions+" where version_id = ? order by id desc limit 1", version).Scan(&seconds)
	return time.Unix(seconds, 0).UTC(), err
}

func step(source *goose.Source) store.Migration {
	text, _ := migrations.ReadFile("migrations/" + path.Base(source.Path)) // goose has just read it
	_, name, _ := strings.Cut(strings.TrimSuffix(path.Base(source.Path), ".sql"), "_")
	return store.Migration{Version: source.Version, Name: name, SQL: string(text)}
}
