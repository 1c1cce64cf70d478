//go:build unix

package storm

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/couchbase"
	"github.com/tuskqueue/tusk/store/ledgers"
	"github.com/tuskqueue/tusk/store/mysql"
	"github.com/tuskqueue/tusk/store/postgres"
	"github.com/tuskqueue/tusk/store/sqlite/sqlitefile"
)

// engine is what the storm needs to know about an engine.
type engine struct {
	open func(ctx context.Context, dsn string) (store.Store, func() error, error)
	// pool opens a pool for users' transactions. It is nil if the engine has none.
	pool func(dsn string) (*sql.DB, error)
	text string // the type of a comparable text column
}

var engines = map[string]engine{
	"sqlite": {
		open: func(ctx context.Context, dsn string) (store.Store, func() error, error) {
			s, err := sqlitefile.Open(ctx, dsn)
			if err != nil {
				return nil, nil, err
			}
			return s, s.Close, nil
		},
		pool: sqlitefile.Pool,
		text: "text",
	},
	"postgres": {
		open: func(ctx context.Context, dsn string) (store.Store, func() error, error) {
			s, err := postgres.Open(ctx, dsn)
			if err != nil {
				return nil, nil, err
			}
			return s, s.Close, nil
		},
		pool: func(dsn string) (*sql.DB, error) {
			config, err := pgx.ParseConfig(dsn)
			if err != nil {
				return nil, err
			}
			for name := range config.RuntimeParams { // parameters of the pool, which a single connection does not know
				if len(name) > 5 && name[:5] == "pool_" {
					delete(config.RuntimeParams, name)
				}
			}
			db := stdlib.OpenDB(*config)
			db.SetMaxOpenConns(4)
			return db, nil
		},
		text: "text",
	},
	"mysql": {
		open: func(ctx context.Context, dsn string) (store.Store, func() error, error) {
			s, err := mysql.Open(ctx, dsn)
			if err != nil {
				return nil, nil, err
			}
			return s, s.Close, nil
		},
		pool: func(dsn string) (*sql.DB, error) {
			db, _, err := mysql.Pool(dsn)
			if err != nil {
				return nil, err
			}
			db.SetMaxOpenConns(4)
			return db, nil
		},
		text: "varchar(40)",
	},
	"ledgers": { // users' transactions are left out: they would need to know on which server a task is
		open: func(ctx context.Context, dsn string) (store.Store, func() error, error) {
			s, err := ledgers.Open(ctx, strings.Fields(dsn)...)
			if err != nil {
				return nil, nil, err
			}
			return s, s.Close, nil
		},
	},
	"couchbase": {
		open: func(ctx context.Context, dsn string) (store.Store, func() error, error) {
			s, err := couchbase.Open(ctx, dsn)
			if err != nil {
				return nil, nil, err
			}
			return s, s.Close, nil
		},
	},
}

// prepare creates Tusk's schema, and the tables for the storm's own transactions.
func prepare(ctx context.Context, name, dsn string) error {
	e := engines[name]
	s, closeStore, err := e.open(ctx, dsn)
	if err != nil {
		return err
	}
	defer closeStore()
	if d, ok := s.(*ledgers.Store); ok {
		if err := d.Divide(ledgerCount); err != nil {
			return err
		}
	}
	m, ok := store.As[store.Migrator](s)
	if !ok {
		return errors.New("the engine has no schema")
	}
	if _, err := m.Migrate(ctx, -1); err != nil {
		return err
	}
	if e.pool == nil {
		return nil
	}
	db, err := e.pool(dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	for _, table := range []string{"storm_effect", "storm_ledger", "storm_pace"} {
		if _, err := db.ExecContext(ctx, "create table "+table+" (id "+e.text+" not null, token "+e.text+
			" not null)"); err != nil {
			return err
		}
	}
	return nil
}
