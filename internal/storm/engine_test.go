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
	// pool opens a pool for users' transactions on a server. It is nil if the engine has none.
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
		pool: postgresPool,
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
	"ledgers": {
		open: func(ctx context.Context, dsn string) (store.Store, func() error, error) {
			s, err := ledgers.Open(ctx, strings.Fields(dsn)...)
			if err != nil {
				return nil, nil, err
			}
			return s, s.Close, nil
		},
		pool: postgresPool,
		text: "text",
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

func postgresPool(dsn string) (*sql.DB, error) {
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
}

// pools opens a pool on each server of a DSN, or none if the engine takes part in no transactions of users.
func (e engine) pools(dsn string) (all pools, err error) {
	if e.pool == nil {
		return nil, nil
	}
	for _, one := range strings.Fields(dsn) {
		db, err := e.pool(one)
		if err != nil {
			return nil, errors.Join(err, all.Close())
		}
		all = append(all, db)
	}
	return all, nil
}

// pools are pools for users' transactions, one for each server.
type pools []*sql.DB

func (p pools) Close() (err error) {
	for _, db := range p {
		err = errors.Join(err, db.Close())
	}
	return err
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
	all, err := e.pools(dsn)
	if err != nil {
		return err
	}
	defer all.Close()
	for _, db := range all[:min(len(all), ledgerServers)] { // a standby gets the tables of its server
		for _, table := range []string{"storm_effect", "storm_ledger", "storm_pace"} {
			if _, err := db.ExecContext(ctx, "create table "+table+" (id "+e.text+" not null, token "+e.text+
				" not null)"); err != nil {
				return err
			}
		}
	}
	return nil
}
