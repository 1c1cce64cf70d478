package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// crowded opens a store through a pool of two connections, which crowd takes.
func crowded(t testing.TB) (s store.Store, crowd func()) {
	_, other := fresh(t)
	config := other.Config()
	config.MaxConns = 2
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	own, err := postgres.New(t.Context(), pool, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { own.Close() })
	return own, func() {
		for range config.MaxConns {
			begin(t, pool)
		}
	}
}
