// Package enginetest opens the engines on databases of their own, which have the newest schema and are empty. It is for
// tests of code that uses a store.
//
// It may use the engines, and the servers that packages pgtest, mysqltest and cbfake start.
package enginetest

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/tuskqueue/tusk/internal/cbfake"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/couchbase"
	"github.com/tuskqueue/tusk/store/mysql"
	"github.com/tuskqueue/tusk/store/mysql/mysqltest"
	"github.com/tuskqueue/tusk/store/postgres"
	"github.com/tuskqueue/tusk/store/postgres/pgtest"
	"github.com/tuskqueue/tusk/store/sqlite/sqlitefile"
)

// SQL opens each engine of an SQL database, by its name.
var SQL = map[string]func(t testing.TB) store.Store{
	"sqlite": func(t testing.TB) store.Store {
		return migrated(t)(sqlitefile.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "tusk.db")))
	},
	"postgres": func(t testing.TB) store.Store { return Postgres(t, PostgresDSN(t)) },
	"mysql":    func(t testing.TB) store.Store { return migrated(t)(mysql.Open(t.Context(), mysqltest.Database(t))) },
}

// Main runs the tests of a binary and stops the servers that they started.
func Main(m interface{ Run() int }) { pgtest.Main(mysqltest.Around{Tests: m}) }

// PostgresDSN makes a database and returns its DSN, with settings as the connection's parameters.
func PostgresDSN(t testing.TB, settings ...string) string {
	t.Helper()
	return template.DSN(t, settings...)
}

// template saves each test the migration, which takes longer than many of them.
var template = pgtest.Template{Prepare: func(dsn string) error {
	ctx := context.Background()
	s, err := postgres.Open(ctx, dsn)
	if err != nil {
		return err
	}
	defer s.Close()
	_, err = s.Migrate(ctx, -1)
	return err
}}

// Postgres opens a database, which may be behind a pooler.
func Postgres(t testing.TB, dsn string) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// Couchbase opens a bucket of a fake cluster with one node.
func Couchbase(t testing.TB) store.Store {
	t.Helper()
	fake, err := cbfake.Start(1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	return migrated(t)(couchbase.Open(t.Context(), fake.URL()+"?sasl=plain"))
}

type database interface {
	store.Store
	store.Migrator
	Close() error
}

// migrated closes an opened database with the test, and brings it up to the newest schema.
func migrated(t testing.TB) func(opened any, err error) store.Store {
	t.Helper()
	return func(opened any, err error) store.Store {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		s := opened.(database)
		t.Cleanup(func() { s.Close() })
		if _, err := s.Migrate(t.Context(), -1); err != nil {
			t.Fatal(err)
		}
		return s
	}
}
