package migrate

import (
	"context"
	"database/sql"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/tuskqueue/tusk/store"
)

// Schema is a schema whose files goose runs unchanged.
type Schema struct {
	Files   fs.FS // has the folder migrations
	Dialect goose.Dialect
	Table   string // the table in which goose keeps the versions
	Seconds string // an SQL expression: when a row of Table was written, in seconds since 1970
}

// Version reads the version of a database from Table. It returns 0 if no step was applied.
func (s *Schema) Version(ctx context.Context, db interface {
	QueryRowContext(ctx context.Context, text string, args ...any) *sql.Row
}) (at int64, err error) {
	err = db.QueryRowContext(ctx, "select coalesce(max(version_id), 0) from "+s.Table+" where is_applied").Scan(&at)
	return at, err
}

// Take brings a database from one version to another. It returns the steps that it applied.
func (s *Schema) Take(ctx context.Context, db *sql.DB, from, to int64) ([]store.Migration, error) {
	if err := Known(from, Newest(s.Files)); err != nil || from == to {
		return nil, err
	}
	steps, err := Read(s.Files)
	if err != nil {
		return nil, err
	}
	folder, err := fs.Sub(s.Files, "migrations")
	if err != nil {
		return nil, err
	}
	provider, err := goose.NewProvider(s.Dialect, db, folder, goose.WithTableName(s.Table),
		goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()))
	if err != nil {
		return nil, err
	}
	take := provider.UpTo
	if to < from {
		take = provider.DownTo
	}
	results, err := take(ctx, to)
	if err != nil {
		return nil, err
	}
	return Taken(steps, results), nil
}

// List returns all steps. Those up to the database's version, at, have the time at which they
// were applied.
func (s *Schema) List(ctx context.Context, db *sql.DB, at int64) ([]store.Migration, error) {
	steps, err := Read(s.Files)
	if err != nil {
		return nil, err
	}
	written := "select " + s.Seconds + " from " + s.Table + " where version_id = ? order by id desc limit 1"
	for i := range steps {
		if steps[i].Version > at {
			break
		}
		var seconds float64
		if err := db.QueryRowContext(ctx, written, steps[i].Version).Scan(&seconds); err != nil {
			return nil, err
		}
		steps[i].AppliedAt = time.Unix(int64(seconds), 0).UTC()
	}
	return steps, nil
}

// ups returns the SQL of all steps up, in order.
func (s *Schema) ups() ([]string, error) {
	steps, err := Read(s.Files)
	ups := make([]string, len(steps))
	for i, one := range steps {
		ups[i], _, _ = strings.Cut(one.SQL, "-- +goose Down")
	}
	return ups, err
}

// Tables returns the names of the tables of the newest version.
func (s *Schema) Tables() (tables []string, err error) {
	ups, err := s.ups()
	for _, up := range ups {
		for line := range strings.Lines(up) {
			if rest, ok := strings.CutPrefix(line, "create table "); ok {
				name, _, _ := strings.Cut(strings.TrimPrefix(rest, "if not exists "), " ")
				tables = append(tables, name)
			}
			if rest, ok := strings.CutPrefix(line, "drop table "); ok {
				gone := strings.TrimRight(rest, ";\n")
				tables = slices.DeleteFunc(tables, func(name string) bool { return name == gone })
			}
		}
	}
	return tables, err
}
