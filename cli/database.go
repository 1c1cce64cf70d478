package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/couchbase"
	"github.com/tuskqueue/tusk/store/ledgers"
	"github.com/tuskqueue/tusk/store/mysql"
	"github.com/tuskqueue/tusk/store/postgres"
	"github.com/tuskqueue/tusk/store/sqlite/sqlitefile"
)

// opener opens an engine's store. The returned function closes it.
type opener func(ctx context.Context, dsn string) (store.Store, func() error, error)

// engines are the engines in this binary, by name. Only this file names them.
var engines = map[string]opener{
	"sqlite": func(ctx context.Context, dsn string) (store.Store, func() error, error) {
		s, err := sqlitefile.Open(ctx, dsn)
		if err != nil {
			return nil, nil, err
		}
		return s, s.Close, nil
	},
	"postgres": func(ctx context.Context, dsn string) (store.Store, func() error, error) {
		s, err := postgres.Open(ctx, dsn)
		if err != nil {
			return nil, nil, err
		}
		return s, s.Close, nil
	},
	"ledgers": func(ctx context.Context, dsn string) (store.Store, func() error, error) {
		s, err := ledgers.Open(ctx, databasesOf(dsn)...)
		if err != nil {
			return nil, nil, err
		}
		return s, s.Close, nil
	},
	"citus": func(ctx context.Context, dsn string) (store.Store, func() error, error) {
		s, err := ledgers.OpenCitus(ctx, dsn)
		if err != nil {
			return nil, nil, err
		}
		return s, s.Close, nil
	},
	"couchbase": func(ctx context.Context, dsn string) (store.Store, func() error, error) {
		s, err := couchbase.Open(ctx, dsn)
		if err != nil {
			return nil, nil, err
		}
		return s, s.Close, nil
	},
	"mysql": func(ctx context.Context, dsn string) (store.Store, func() error, error) {
		s, err := mysql.Open(ctx, dsn)
		if err != nil {
			return nil, nil, err
		}
		return s, s.Close, nil
	},
}

// access says what a command does if the database does not exist.
type access int

const (
	// existing is for commands that read a database or change its contents. They never create one.
	existing access = iota
	// creating is for commands that fill a database. They create an embedded database and its schema; they create the
	// schema on a server only with --auto-migrate.
	creating
	// planning is for a dry run of migrate up. In place of a file that is missing
	// it looks at an empty database elsewhere.
	planning
)

// Store opens the database that --db names and checks its schema. The caller must call closeStore, even after an
// error.
func (app *App) Store(ctx context.Context, a access) (s store.Store, closeStore func(), err error) {
	d, s, closeStore, err := app.open(ctx, a)
	if err != nil {
		return nil, closeStore, err
	}
	embedded := d.engine == "sqlite"
	if err := app.readySchema(ctx, s, app.flags.autoMigrate || embedded && a == creating); err != nil {
		closeStore()
		return nil, func() {}, err
	}
	return s, closeStore, nil
}

// open opens the store, whatever its schema.
func (app *App) open(ctx context.Context, a access) (d dsn, s store.Store, closeStore func(), err error) {
	none := func() {}
	d, err = parseDSN(app.flags.db)
	if err != nil {
		return d, nil, none, app.fromWhere(err)
	}
	openStore := engines[d.engine]
	if openStore == nil {
		p := badDSN(dsnHint, "this build of tusk has no engine for %s", d.engine)
		p.Code = "unknown_engine"
		return d, nil, none, app.fromWhere(p)
	}
	if d.engine == "sqlite" {
		if err := checkFile(d.path, a != existing || app.flags.autoMigrate); err != nil {
			return d, nil, none, app.fromWhere(err)
		}
		if _, err := os.Stat(d.path); a == planning && errors.Is(err, fs.ErrNotExist) {
			openStore = openEmpty
		}
	}
	s, closeEngine, err := openStore(ctx, d.text)
	if err != nil && strings.Contains(err.Error(), "is not an SQLite database") {
		return d, nil, none, app.fromWhere(badDSN("name another file", "%s is not an SQLite database, or an encrypted one",
			quote(d.path)))
	}
	if err != nil {
		return d, nil, none, fmt.Errorf("open %s: %w", hideDSN(app.flags.db), err)
	}
	return d, s, func() {
		if err := closeEngine(); err != nil {
			app.Log.Warn("close", "error", err)
		}
	}, nil
}

// openEmpty opens an empty SQLite database in a folder that is removed with it.
func openEmpty(ctx context.Context, _ string) (store.Store, func() error, error) {
	folder, err := os.MkdirTemp("", "tusk-empty-")
	if err != nil {
		return nil, nil, err
	}
	s, closeStore, err := engines["sqlite"](ctx, "sqlite:"+filepath.Join(folder, "empty.db"))
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(folder))
	}
	return s, func() error { return errors.Join(closeStore(), os.RemoveAll(folder)) }, nil
}

// fromWhere adds the source of the database URL to an error, unless it was the flag.
func (app *App) fromWhere(err error) error {
	if p := (*Problem)(nil); errors.As(err, &p) && app.config != nil {
		if source := app.config.source["db"]; source != "" && source != sourceFlag && source != sourceDefault {
			p.Text += " (from " + source + ")"
		}
	}
	return err
}

// checkFile finds problems with a path before the engine does, whose errors would be less clear. It does not open the
// file: a process that closes it loses the locks that SQLite holds on it for a store that is already open.
func checkFile(path string, create bool) error {
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return badDSN("name a file in it: sqlite:"+filepath.Join(path, "tusk.db"), "the database %s is a folder",
			quote(path))
	case err == nil:
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return badDSN("check the permissions of its folders", "the database %s cannot be reached: %v", quote(path), err)
	}
	if folder := filepath.Dir(path); !isFolder(folder) {
		return badDSN("create it: mkdir -p "+folder, "the folder %s of the database does not exist", quote(folder))
	}
	if create {
		return nil
	}
	return &Problem{Code: "database_missing", Exit: exitUsage, Text: "there is no database " + quote(path),
		Hint: "tusk migrate up creates it, or name another with --db or TUSK_DATABASE_URL"}
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// readySchema checks that the schema matches this program, or migrates it.
func (app *App) readySchema(ctx context.Context, s store.Store, migrate bool) error {
	m, ok := store.As[store.Migrator](s)
	if !ok {
		return nil
	}
	steps, err := m.Migrations(ctx)
	missing := errors.Is(err, store.ErrSchemaMissing) // an engine may report it this way too
	if err != nil && !missing {
		return fmt.Errorf("schema: %w", err)
	}
	pending := 0
	for _, step := range steps {
		if step.AppliedAt.IsZero() {
			pending++
		}
	}
	switch {
	case pending == 0 && !missing:
		return nil
	case migrate:
		done, err := m.Migrate(ctx, -1)
		if err != nil {
			return err
		}
		app.Log.Debug("migrate", "steps", len(done))
		return nil
	case missing:
		return err
	case pending == len(steps):
		return store.ErrSchemaMissing
	default:
		return store.ErrSchemaOld
	}
}
