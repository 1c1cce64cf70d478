package postgres_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres/pgtest"
)

// heldUp makes a segment that could be dropped, except for a transaction that has read it.
func heldUp(t *testing.T, s store.Store, direct string) (term int64) {
	t.Helper()
	_, pool := open(t, direct, false)
	term = lead(t, s)
	w := startWorker(t, s)
	goRound(t, s, w, 10)
	shrink(t, pool)
	goRound(t, s, w, 10)
	if err := s.(store.Maintainer).Maintain(t.Context(), term); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Prune(t.Context(), term, store.Retention{Completed: time.Microsecond}, 1000); err != nil {
		t.Fatal(err)
	}
	c, err := pgx.Connect(t.Context(), plain(direct))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(context.Background()) })
	if _, err := c.Exec(t.Context(), "begin; select count(*) from tusk.tasks"); err != nil {
		t.Fatal(err)
	}
	return term
}

func TestMaintenanceGoesOnWhileASegmentCannotBeDropped(t *testing.T) {
	dsn := pgtest.DSN(t)
	s, pool := open(t, dsn, true)
	term := heldUp(t, s, dsn)
	before := number(t, pool, "select count(*) from tusk.segment")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // the limit of the chore
	defer cancel()
	if err := s.Maintain(ctx, term); err != nil {
		t.Errorf("maintain: %v", err)
	}
	if n := number(t, pool, "select count(*) from tusk.segment"); n != before {
		t.Errorf("%d segments, %d before: one was dropped that a transaction has read", n, before)
	}
}

func TestMaintenanceLeavesNothingOnASessionOfAPooler(t *testing.T) {
	dsn := pgtest.DSN(t)
	open(t, dsn, true)
	s, pool := open(t, bouncer(t, dsn), false)
	settings := "select string_agg(name || '=' || setting, ' ' order by name) from pg_settings where source = " +
		"'session' and name <> 'application_name'"
	var before, after string
	if err := pool.QueryRow(t.Context(), "select coalesce(("+settings+"), '')").Scan(&before); err != nil {
		t.Fatal(err)
	}
	term := heldUp(t, s, dsn)
	if err := s.Maintain(t.Context(), term); err != nil {
		t.Errorf("maintain: %v", err)
	}
	if err := pool.QueryRow(t.Context(), "select coalesce(("+settings+"), '')").Scan(&after); err != nil {
		t.Fatal(err)
	}
	if after != before {
		t.Errorf("the session of the pooler has settings %q, and had %q", after, before)
	}
}

func TestMigrateLeavesNoLockOnASessionOfAPooler(t *testing.T) {
	dsn := pgtest.DSN(t)
	s, _ := open(t, bouncer(t, dsn), false)
	if _, err := s.Migrate(t.Context(), -1); err != nil {
		t.Fatal(err)
	}
	d, direct := open(t, dsn, false)
	if n := number(t, direct,
		"select count(*) from pg_locks where locktype = 'advisory' and database = (select oid from pg_database where "+
			"datname = current_database())"); n != 0 {
		t.Errorf("%d advisory locks are held", n)
	}
	if steps, err := d.Migrate(t.Context(), -1); err != nil || len(steps) != 0 {
		t.Error(len(steps), err)
	}
}

func TestOfManyWhoMigrateAtOnceEachStepIsTakenByOne(t *testing.T) {
	dsn := pgtest.DSN(t)
	var g sync.WaitGroup
	var mu sync.Mutex
	taken := map[string]int{}
	for range 4 {
		s, _ := open(t, dsn, false)
		g.Go(func() {
			steps, err := s.Migrate(context.Background(), -1)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, step := range steps {
				taken[step.Name]++
			}
		})
	}
	g.Wait()
	s, _ := open(t, dsn, false)
	all, err := s.Migrations(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		if taken[m.Name] != 1 || m.AppliedAt.IsZero() {
			t.Errorf("step %s was taken %d times", m.Name, taken[m.Name])
		}
	}
}
