package postgres_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
	"github.com/tuskqueue/tusk/store/postgres/pgtest"
	"github.com/tuskqueue/tusk/store/storetest"
)

// engine makes databases for the suite. Transactions are begun on a pool of the test's own, as a user would begin
// them.
func engine(
	begin func(t testing.TB, dsn string) (tx any, commit, rollback func() error), settings ...string,
) storetest.Engine {
	return engineThrough(func(_ testing.TB, dsn string) string { return dsn }, begin, settings...)
}

// engineThrough is an engine that reaches its databases by another DSN.
func engineThrough(
	through func(t testing.TB, dsn string) string,
	begin func(t testing.TB, dsn string) (tx any, commit, rollback func() error), settings ...string,
) storetest.Engine {
	return engineFrom(migrated, through, begin, settings...)
}

// engineFrom is an engine whose databases are copies of a template.
func engineFrom(
	template *pgtest.Template, through func(t testing.TB, dsn string) string,
	begin func(t testing.TB, dsn string) (tx any, commit, rollback func() error), settings ...string,
) storetest.Engine {
	var dsns sync.Map
	return storetest.Engine{
		Shared: true,
		New: func(t testing.TB) func() store.Store {
			// The suite opens many handles, so connections that it leaves idle are closed.
			dsn := template.DSN(t, append(settings, "pool_max_conn_idle_time=200ms", "pool_health_check_period=50ms")...)
			way := through(t, dsn)
			return func() store.Store {
				s, err := postgres.Open(context.Background(), way)
				if err != nil {
					t.Fatal(err)
				}
				dsns.Store(s, dsn)
				t.Cleanup(func() { s.Close() })
				return s
			}
		},
		Begin: func(t testing.TB, s store.Store) (tx any, commit, rollback func() error) {
			dsn, _ := dsns.Load(s)
			return begin(t, dsn.(string))
		},
		Crowded: crowded,
	}
}

// migrated is the template of the databases that the clauses use.
var migrated = &pgtest.Template{Prepare: migrate}

func migrate(dsn string) error {
	ctx := context.Background()
	s, err := postgres.Open(ctx, dsn)
	if err != nil {
		return err
	}
	defer s.Close()
	_, err = s.Migrate(ctx, -1)
	return err
}

func beginPgx(t testing.TB, dsn string) (any, func() error, func() error) {
	ctx := context.Background()
	c, err := pgx.Connect(ctx, plain(dsn))
	if err != nil {
		t.Fatal(err)
	}
	tx, err := c.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	end := func(how func(context.Context) error) func() error {
		return func() error { return errors.Join(how(ctx), c.Close(ctx)) }
	}
	return tx, end(tx.Commit), end(tx.Rollback)
}

func TestConformance(t *testing.T) { storetest.Run(t, engine(beginPgx)) }

// elsewhere is a database whose tables are in a schema other than the default.
var elsewhere = &pgtest.Template{Prepare: func(dsn string) error { return migrate(inSchema(nil, dsn)) }}

func inSchema(_ testing.TB, dsn string) string { return dsn + "&tusk_schema=elsewhere" }

func TestConformanceInPacksInAnotherSchema(t *testing.T) {
	storetest.Run(t, inPacks(engineFrom(elsewhere, inSchema, beginPgx)))
}

func TestConformanceByExchange(t *testing.T) {
	storetest.Run(t, inPacks(storetest.Exchanging(engine(beginPgx))))
}

// inPacks is an engine that makes packs wherever possible.
func inPacks(e storetest.Engine) storetest.Engine {
	database := e.New
	e.New = func(t testing.TB) func() store.Store {
		open := database(t)
		return func() store.Store {
			s := open()
			engine, _ := store.As[*postgres.Store](s)
			engine.PackAll()
			return s
		}
	}
	return e
}

func TestConformanceOnOneConnection(t *testing.T) {
	onlyLong(t)
	storetest.Run(t, engine(beginPgx, "pool_max_conns=1"))
}

func TestConformanceBehindAPooler(t *testing.T) {
	onlyLong(t)
	storetest.Run(t, engineThrough(bouncer, beginPgx))
}

func onlyLong(t *testing.T) {
	t.Helper()
	if os.Getenv("TUSK_TEST_LONG") == "" {
		t.Skip("takes a minute, and TUSK_TEST_LONG is not set")
	}
}

// plain returns a DSN without the parameters that only a pool reads.
func plain(dsn string) string {
	before, query, _ := strings.Cut(dsn, "?")
	params := slices.DeleteFunc(strings.Split(query, "&"), func(p string) bool {
		return strings.HasPrefix(p, "pool_") ||
			strings.HasPrefix(p, "tusk_")
	})
	return before + "?" + strings.Join(params, "&")
}

func TestCompare(t *testing.T) { storetest.Compare(t, engine(beginPgx)) }

func TestCompareInPacks(t *testing.T) { storetest.Compare(t, inPacks(engine(beginPgx))) }

func TestReruns(t *testing.T) { storetest.Reruns(t, engine(beginPgx), 2000) }
