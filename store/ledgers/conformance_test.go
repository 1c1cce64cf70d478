package ledgers_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/ledgers"
	"github.com/tuskqueue/tusk/store/postgres/pgtest"
	"github.com/tuskqueue/tusk/store/storetest"
)

func TestMain(m *testing.M) { pgtest.Main(suite{m}) }

// suite is all tests, with what has to be stopped after them.
type suite struct{ *testing.M }

func (s suite) Run() int {
	code := s.M.Run()
	if c := sharedCluster.cluster; c != nil {
		c.stop()
	}
	return code
}

// three makes databases with three ledgers.
var three = &pgtest.Template{Prepare: func(dsn string) error { return divide(3, dsn) }}

func divide(n int, dsns ...string) error {
	ctx := context.Background()
	s, err := ledgers.Open(ctx, dsns...)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Divide(n); err != nil {
		return err
	}
	_, err = s.Migrate(ctx, -1)
	return err
}

func open(t testing.TB, dsns ...string) *ledgers.Store {
	t.Helper()
	s, err := ledgers.Open(context.Background(), dsns...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// engine makes databases of three ledgers for the suite.
func engine(prepare func(*ledgers.Store)) storetest.Engine { return engineOf(three, prepare) }

// engineOf makes databases from a template.
func engineOf(template *pgtest.Template, prepare func(*ledgers.Store)) storetest.Engine {
	var dsns sync.Map
	return storetest.Engine{
		Shared: true,
		New: func(t testing.TB) func() store.Store {
			dsn := template.DSN(t, "pool_max_conn_idle_time=200ms", "pool_health_check_period=50ms")
			return func() store.Store {
				s := open(t, dsn)
				prepare(s)
				dsns.Store(s, dsn)
				return s
			}
		},
		Begin: func(t testing.TB, s store.Store) (tx any, commit, rollback func() error) {
			dsn, _ := dsns.Load(s)
			return begin(t, dsn.(string))
		},
		Crowded: func(t testing.TB) (store.Store, func()) { return crowded(t, template.DSN(t), prepare) },
	}
}

// crowded opens a queue on a user's pool.
func crowded(t testing.TB, dsn string, prepare func(*ledgers.Store)) (store.Store, func()) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 4
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	s, err := ledgers.New(t.Context(), []*pgxpool.Pool{pool}, ledgers.Options{})
	if err != nil {
		t.Fatal(err)
	}
	prepare(s)
	t.Cleanup(func() { s.Close() })
	return s, func() {
		for range config.MaxConns {
			tx, err := pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { tx.Rollback(context.Background()) })
		}
	}
}

func begin(t testing.TB, dsn string) (any, func() error, func() error) {
	ctx := context.Background()
	c, err := pgx.Connect(ctx, withoutPool(dsn))
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

// withoutPool returns a DSN without the parameters that only a pool reads.
func withoutPool(dsn string) string {
	before, query, _ := strings.Cut(dsn, "?")
	var params []string
	for _, p := range strings.Split(query, "&") {
		if !strings.HasPrefix(p, "pool_") {
			params = append(params, p)
		}
	}
	return before + "?" + strings.Join(params, "&")
}

// spread is the engine whose tasks are spread at random over the ledgers, as in queues that are not pinned.
func spread() storetest.Engine {
	e := engine(func(*ledgers.Store) {})
	e.Spread = true
	return e
}

func TestConformanceSpread(t *testing.T) { storetest.Run(t, spread()) }

func TestCompareSpread(t *testing.T) { storetest.Compare(t, spread()) }

// With one ledger nothing is in another ledger, and nothing is refused.
func TestCompareOnOneLedger(t *testing.T) {
	one := &pgtest.Template{Prepare: func(dsn string) error { return divide(1, dsn) }}
	storetest.Compare(t, engineOf(one, func(*ledgers.Store) {}))
}

// In pinned queues the whole contract holds, including order.
func TestConformancePinned(t *testing.T) { storetest.Run(t, engine((*ledgers.Store).PinAll)) }

// Keys that are used again and again, over ledgers in which keys and tasks are apart.
func TestReruns(t *testing.T) { storetest.Reruns(t, engine(func(*ledgers.Store) {}), 500) }

func BenchmarkTicks(b *testing.B) { storetest.BenchTicks(b, engine(func(*ledgers.Store) {})) }
