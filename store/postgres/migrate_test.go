package postgres_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
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
		s, err := postgres.New(ctx, pool, postgres.Options{Schema: schema})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		stores = append(stores, s)
		if _, err := s.Count(ctx); !errors.Is(err, store.ErrSchemaMissing) {
			t.Fatal(err)
		}
		if _, err := s.Check(ctx); !errors.Is(err, store.ErrSchemaMissing) {
			t.Fatal(err)
		}
		if steps, err := s.Migrations(ctx); err != nil || len(steps) < 2 || slices.ContainsFunc(steps,
			func(m store.Migration) bool { return !m.AppliedAt.IsZero() }) {
			t.Fatal(steps, err)
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
		if _, err := s.Edit(ctx, store.Edit{IDs: []store.ID{tasks[0].ID},
			Change: store.Change{Op: store.Cancel}}); err != nil {
			t.Fatal(err)
		}
	}
	if steps, err := stores[1].Migrate(ctx, 0); err != nil || len(steps) == 0 {
		t.Fatal(steps, err)
	}
	if _, err := stores[1].Count(ctx); !errors.Is(err, store.ErrSchemaMissing) {
		t.Fatal(err)
	}
	if n := number(t, pool, `select count(*) from pg_class c join pg_namespace n on n.oid = c.relnamespace
		where n.nspname = 'other_1' and c.relkind in ('r', 'p', 'v', 'S') and c.relname not like 'migration%'`); n != 0 {
		t.Errorf("%d tables are left", n)
	}
	if n := number(t, pool, `select count(*) from pg_proc p join pg_namespace n on n.oid = p.pronamespace
		where n.nspname like 'other%'`); n != 0 {
		t.Errorf("%d functions are left", n)
	}
	if n := number(t, pool, "select count(*) from pg_namespace where nspname like 'other_1\\_f%'"); n != 0 {
		t.Errorf("%d schemas of functions are left", n)
	}
	if _, err := stores[0].Count(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := stores[1].Migrate(ctx, -1); err != nil {
		t.Fatal(err)
	}
	if _, err := postgres.New(ctx, pool, postgres.Options{Schema: `x"; drop`}); err == nil {
		t.Fatal("that is no schema name")
	}
}

// nextStep changes the schema as the step of a later release would. It only adds, in the order in which a claim
// locks the tables.
const nextStep = `
set local lock_timeout = '5s';
alter table tusk.worker add column later_d text;
alter table tusk.lease add column later_c text;
alter table tusk.unready add column later_b int not null default 0;
alter table tusk.log add column later_a text;
create table tusk.later (id int);
insert into tusk.migration (version_id, is_applied) values (9000, true)`

func TestASchemaOfTheNextReleaseIsWorkedOnByThisOneUnlessItRefuses(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	w := startWorker(t, s)
	var g sync.WaitGroup
	g.Go(func() { load(t, s, 2000) })
	eventually(t, "tasks are claimed", func() bool { return number(t, pool, "select count(*) from tusk.outcome") > 0 })
	var err error
	for range 10 { // as Migrate does it
		if _, err = pool.Exec(ctx, nextStep); err == nil || !strings.Contains(err.Error(), "deadlock") {
			break
		}
	}
	g.Wait()
	if err != nil {
		t.Fatal(err)
	}
	old, _ := open(t, pool.Config().ConnString(), false) // a program that starts with the old schema
	if _, err := old.Check(ctx); err != nil {
		t.Fatal(err)
	}
	goRound(t, old, startWorker(t, old), 100)
	delayed := newTasks(2, "q")
	delayed[0].Delay, delayed[1].Key = time.Hour, "k"
	if _, err := old.Enqueue(ctx, delayed); err != nil {
		t.Fatal(err)
	}
	goRound(t, s, w, 10)
	if _, err := old.Migrate(ctx, 1); !errors.Is(err, store.ErrSchemaNew) {
		t.Errorf("it migrates what it does not know: %v", err)
	}
	other, err := postgres.NewProgram(pool, "of a release before") // its functions are not installed yet
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := other.Check(ctx); !errors.Is(err, store.ErrSchemaOld) ||
		!strings.Contains(err.Error(), "tusk migrate up") {
		t.Error(err)
	}
	if steps, err := other.Migrate(ctx, -1); err != nil || len(steps) != 1 || steps[0].Name != "functions" {
		t.Error(steps, err)
	}
	if _, err := other.Check(ctx); err != nil {
		t.Error(err)
	}
	goRound(t, other, startWorker(t, other), 10)
	if _, err := pool.Exec(ctx, "update tusk.server set oldest_program = 9000"); err != nil {
		t.Fatal(err)
	}
	if _, err := old.Migrate(ctx, -1); !errors.Is(err, store.ErrSchemaNew) {
		t.Errorf("it installs functions that break on these tables: %v", err)
	}
	if _, err := old.Check(ctx); !errors.Is(err, store.ErrSchemaNew) {
		t.Error(err)
	}
}

// A program of the previous release goes on while the last step of this one is taken, and taken back.
func TestMigrationsGoDownAndUpWhileWorkersRun(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	all, err := s.Migrations(ctx)
	if err != nil {
		t.Fatal(err)
	}
	before := all[len(all)-3].Version
	older, err := postgres.NewFormer(pool)
	if err != nil {
		t.Fatal(err)
	}
	defer older.Close()
	if _, err := older.Migrate(ctx, -1); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(ctx, "update tusk.program set version = $1 where name = $2", before,
		older.FunctionSchema()); err != nil {
		t.Fatal(err)
	}
	var done atomic.Bool
	var g sync.WaitGroup
	g.Go(func() {
		defer done.Store(true)
		load(t, older, 2000)
	})
	rounds := 0
	for ; !done.Load() || rounds == 0; rounds++ {
		for _, version := range []int64{before, -1} {
			if steps, err := s.Migrate(ctx, version); err != nil || len(steps) != 2 {
				t.Fatal(steps, err)
			}
			published := older
			if version < 0 {
				published = s
			}
			if n := number(t, pool, "select count(*) from tusk.program where published and name = $1",
				published.FunctionSchema()); n != 1 {
				t.Fatalf("version %d: users do not call %s", version, published.FunctionSchema())
			}
			if _, err := pool.Exec(
				ctx, "select tusk.enqueue('k', queue => 'sql'); select * from tusk.tasks limit 1"); err != nil {
				t.Fatal(err)
			}
		}
	}
	g.Wait()
	t.Logf("down and up %d times", rounds)
}

func TestAMigrationWaitsForALockAgainAndGivesUpAndCanBeRepeated(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	hold := func() pgx.Tx {
		tx := begin(t, pool)
		if _, err := tx.Exec(ctx, "select from tusk.record"); err != nil { // the transaction stays open
			t.Fatal(err)
		}
		return tx
	}
	tx := hold()
	down := make(chan error, 1)
	go func() {
		_, err := s.Migrate(ctx, 0)
		down <- err
	}()
	waits := func() bool { return number(t, pool, blocked) == 1 }
	eventually(t, "a step waits", waits)
	eventually(t, "it gives up", func() bool { return !waits() })
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-down; err != nil {
		t.Fatal(err)
	}
	if _, err := s.Migrate(ctx, -1); err != nil {
		t.Fatal(err)
	}
	tx = hold()
	brief, cancel := context.WithTimeout(ctx, 5500*time.Millisecond)
	defer cancel()
	if steps, err := s.Migrate(brief, 0); err == nil {
		t.Fatalf("%d steps down, %v", len(steps), err)
	}
	if _, err := s.Check(ctx); !errors.Is(err, store.ErrSchemaOld) {
		t.Error(err)
	}
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Migrate(ctx, -1); err != nil {
		t.Fatal(err)
	}
	goRound(t, s, startWorker(t, s), 10)
}
