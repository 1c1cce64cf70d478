package postgres_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
	"github.com/tuskqueue/tusk/store/postgres/pgtest"
)

func TestTheSchemaGoesUpAndDownInAnySchema(t *testing.T) {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, pgtest.DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	var stores []*postgres.Store
	for _, schema := range []string{"", "other_1"} {
		s, err := postgres.New(pool, postgres.Options{Schema: schema})
		if err != nil {
			t.Fatal(err)
		}
		stores = append(stores, s)
		if _, err := s.Count(ctx); !errors.Is(err, store.ErrSchemaMissing) {
			t.Fatal(err)
		}
		if _, err := s.Check(ctx); !errors.Is(err, store.ErrSchemaMissing) {
			t.Fatal(err)
		}
		var g sync.WaitGroup
		for range 3 { // at once
			g.Go(func() {
				if _, err := s.Migrate(ctx, -1); err != nil {
					t.Error(err)
				}
			})
		}
		g.Wait()
		if _, err := s.Check(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range stores {
		w := startWorker(t, s)
		goRound(t, s, w, 100)
		tasks := newTasks(2, "q")
		tasks[0].Key = "k"
		if _, err := s.Enqueue(ctx, tasks); err != nil {
			t.Fatal(err)
		}
		if err := s.Maintain(ctx, lead(t, s)); err != nil {
			t.Fatal(err)
		}
		if list, err := s.List(ctx, store.Filter{Limit: 1000}); err != nil || len(list) != 102 {
			t.Fatal(len(list), err)
		}
		if _, err := s.Edit(ctx, store.Edit{IDs: []store.ID{tasks[0].ID}, Change: store.Change{Op: store.Cancel}}); err != nil {
			t.Fatal(err)
		}
	}
	if steps, err := stores[1].Migrate(ctx, 0); err != nil || len(steps) == 0 {
		t.Fatal(steps, err)
	}
	if _, err := stores[1].Count(ctx); !errors.Is(err, store.ErrSchemaOld) { // it is at its first version
		t.Fatal(err)
	}
	if n := number(t, pool, `select count(*) from pg_class c join pg_namespace n on n.oid = c.relnamespace
		where n.nspname = 'other_1' and c.relkind in ('r', 'p', 'v', 'S') and c.relname not like 'migration%'`); n != 0 {
		t.Errorf("%d tables are left", n)
	}
	if n := number(t, pool, "select count(*) from pg_proc where pronamespace = 'other_1'::regnamespace"); n != 0 {
		t.Errorf("%d functions are left", n)
	}
	if _, err := stores[0].Count(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := stores[1].Migrate(ctx, -1); err != nil {
		t.Fatal(err)
	}
	if _, err := postgres.New(pool, postgres.Options{Schema: `x"; drop`}); err == nil {
		t.Fatal("that is no schema name")
	}
}
