package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/storetest"
)

// What the planner can be made to believe about the tables.
const (
	huge = "update pg_class set reltuples = greatest(reltuples, 1) * 1000 where relnamespace = 'tusk'::regnamespace"
	// What autovacuum learns about a table and its indexes whose rows were mostly dead at the time.
	sparse = `
		update pg_class set reltuples = %d, relpages = greatest(relpages, 1)
		where relnamespace = 'tusk'::regnamespace and relkind in ('r', 'i')`
	missing = `
		delete from pg_statistic s using pg_class c where c.oid = s.starelid and c.relnamespace = 'tusk'::regnamespace;
		update pg_class set reltuples = -1, relpages = 0
		where relnamespace = 'tusk'::regnamespace and relkind in ('r', 'm', 'p')`
	unwatched = `
		do $$ declare t regclass; begin
			for t in select c.oid from pg_class c where c.relnamespace = 'tusk'::regnamespace and c.relkind = 'r' loop
				execute format('alter table %s set (autovacuum_enabled = off)', t);
			end loop;
		end $$`
	plans = `
		do $$ begin execute format('alter database %I set plan_cache_mode = ', current_database()) || '`
)

// No call depends on what the planner knows about the tables.
func TestWhatACallReadsDoesNotDependOnStatistics(t *testing.T) {
	s, pool := fresh(t)
	exec := func(sql string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	needCounts(t, pool)
	exec(unwatched)
	hold := func(sql, plan string) func() {
		return func() {
			exec(sql)
			exec(plans + plan + "'; end $$")
			pool.Reset()
			exec("select") // opens the connection, since pagesRead does not count on a spare one
		}
	}
	storetest.Costs(t, storetest.Meter{
		Store: s,
		Read:  func() int64 { return pagesRead(t, pool) },
		Learn: hold("analyze", "auto"),
		Beliefs: []storetest.Belief{
			{Name: "knows, with plans for any values", Hold: hold("analyze", "force_generic_plan")},
			{Name: "believes in a thousand times as many", Hold: hold(huge, "auto")},
			{Name: "believes in a thousand times as many, with plans for any values",
				Hold: hold("select", "force_generic_plan")},
			{Name: "believes that two rows of each table are left", Hold: hold(fmt.Sprintf(sparse, 2), "auto")},
			{Name: "believes that twenty rows of each table are left, with plans for any values",
				Hold: hold(fmt.Sprintf(sparse, 20), "force_generic_plan")},
			{Name: "believes that no row of any table is left", Hold: hold(fmt.Sprintf(sparse, 0), "auto")},
			{Name: "knows nothing", Hold: hold(missing, "auto")},
			{Name: "knows nothing, with plans for any values", Hold: hold("select", "force_generic_plan")},
		},
	}, 10_000, 300)
}

// needCounts skips a test on a server older than 15, which cannot be told to flush its counters at once.
func needCounts(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	if number(t, pool, "select current_setting('server_version_num')::bigint") < 150000 {
		t.Skip("the server cannot be told to count at once")
	}
}

// pagesRead returns how many pages of the tables and their indexes were touched.
func pagesRead(t *testing.T, pool *pgxpool.Pool) int64 {
	t.Helper()
	for _, c := range pool.AcquireAllIdle(t.Context()) {
		_, err := c.Exec(t.Context(), "select pg_stat_force_next_flush()")
		c.Release()
		if err != nil {
			t.Fatal(err)
		}
	}
	return number(t, pool, `
		select coalesce(sum(heap_blks_read + heap_blks_hit + coalesce(idx_blks_read + idx_blks_hit, 0)
			+ coalesce(toast_blks_read + toast_blks_hit + tidx_blks_read + tidx_blks_hit, 0)), 0)::bigint
		from pg_statio_user_tables where schemaname = 'tusk'`)
}

// A task that waits after an attempt also has a row in the log, and once its completion was looked up by way of
// that row.
func TestWhatWaitsIsNotLookedForAmongWhatEnded(t *testing.T) {
	s, pool := fresh(t)
	needCounts(t, pool)
	if _, err := s.Enqueue(t.Context(), newTasks(1, "q")); err != nil {
		t.Fatal(err)
	}
	tasks := claimSome(t, s, startWorker(t, s), 1)
	if _, err := s.Finish(t.Context(), []store.Outcome{{Task: &tasks[0], State: store.Retryable, Attempt: 1, Error: "x",
		Fingerprint: "f", Delay: time.Hour}}); err != nil {
		t.Fatal(err)
	}
	looks := func() int64 {
		pagesRead(t, pool) // makes the server count
		return number(t, pool, `select coalesce(sum(idx_scan), 0)::bigint from pg_stat_user_indexes
			where indexrelname = 'outcome_node'`)
	}
	before := looks()
	found, err := s.List(t.Context(), store.Filter{IDs: []store.ID{tasks[0].ID}})
	if err != nil || len(found) != 1 || found[0].State != store.Retryable {
		t.Fatal(found, err)
	}
	if n := looks() - before; n != 0 {
		t.Errorf("its completion was looked for %d times", n)
	}
}

// A flush names all tasks that it completed, often hundreds. Once, for each task of a page, all flushes of its
// transaction were read until one named it.
func TestAPageReadsWhatAFlushSaysOnce(t *testing.T) {
	s, pool := fresh(t)
	needCounts(t, pool)
	const many, flush = 2000, 100
	tasks := newTasks(many, "q")
	for i := range tasks {
		tasks[i].Workflow = store.ID{1} // keeps them out of packs
	}
	if _, err := s.Enqueue(t.Context(), tasks); err != nil {
		t.Fatal(err)
	}
	w := startWorker(t, s)
	for range many / flush {
		claimed := claimSome(t, s, w, flush)
		outcomes := make([]store.Outcome, flush)
		for i := range outcomes {
			outcomes[i] = store.Outcome{Task: &claimed[i], State: store.Completed, Attempt: 1}
		}
		if _, err := s.Finish(t.Context(), outcomes); err != nil {
			t.Fatal(err)
		}
	}
	fetched := func() int64 {
		pagesRead(t, pool) // makes the server count
		return number(t, pool, `select coalesce(sum(idx_tup_fetch), 0)::bigint from pg_stat_user_indexes
			where indexrelname = 'outcome_node'`)
	}
	before := fetched()
	found, _, err := s.Search(t.Context(), store.Filter{Workflow: store.ID{1}, Limit: 1000}, 1<<30)
	if err != nil || len(found) != 1000 || found[0].FinishedAt.IsZero() {
		t.Fatal(len(found), err)
	}
	if n := fetched() - before; n > 4*many/flush {
		t.Errorf("a page of %d tasks read %d flushes; there are %d", len(found), n, many/flush)
	}
}

// A server that knows only one workflow believes that every task belongs to the workflow that is searched for.
func TestTasksOfAWorkflowAreNotLookedForAmongThoseOfAnother(t *testing.T) {
	s, pool := fresh(t)
	needCounts(t, pool)
	ctx := t.Context()
	enqueue := func(id store.ID, n int, delay time.Duration) {
		t.Helper()
		tasks := newTasks(n, "q")
		for i := range tasks {
			tasks[i].Workflow, tasks[i].Delay = id, delay
		}
		if _, err := s.Enqueue(ctx, tasks); err != nil {
			t.Fatal(err)
		}
	}
	one, other := store.ID{1}, store.ID{2}
	enqueue(one, 5000, 0)
	enqueue(one, 5000, time.Hour)
	for _, sql := range []string{unwatched, "analyze", plans + "force_generic_plan'; end $$"} {
		if _, err := pool.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	pool.Reset()
	enqueue(other, 4000, 0)
	enqueue(other, 4000, time.Hour)
	for id, before := range map[store.ID]store.ID{one: {}, other: {}} {
		pages := int64(1 << 30)
		for range 3 { // the first round reads catalogs and makes plans
			from := pagesRead(t, pool)
			found, _, err := s.Search(ctx, store.Filter{Workflow: id, Before: before, Limit: 10}, 1<<30)
			if err != nil || len(found) != 10 {
				t.Fatal(len(found), err)
			}
			pages = min(pages, pagesRead(t, pool)-from)
		}
		if pages > 500 {
			t.Errorf("ten tasks of workflow %v take %d pages", id, pages)
		}
	}
}

// Partial indexes serve searches only as long as the planner can tell from the conditions that it may use them.
func TestSearchesUseTheIndexesOfWhatWaits(t *testing.T) {
	s, pool := fresh(t)
	needCounts(t, pool)
	tasks := newTasks(10_000, "q")
	for i := range tasks {
		tasks[i].Delay, tasks[i].Kind = time.Hour, fmt.Sprint("k", i%2)
	}
	if _, err := s.Enqueue(t.Context(), tasks); err != nil {
		t.Fatal(err)
	}
	scans := func(index string) int64 {
		pagesRead(t, pool) // makes the server count
		return number(t, pool, "select idx_scan from pg_stat_user_indexes where indexrelname = '"+index+"'")
	}
	for index, look := range map[string]func() error{
		"waiting_kind": func() error {
			_, err := s.List(t.Context(), store.Filter{Kinds: []string{"k1"}, Limit: 10})
			return err
		},
		"waiting_lane": func() error {
			_, err := s.List(t.Context(), store.Filter{Queues: []string{"q"}, States: []store.State{store.Scheduled}, Limit: 10})
			return err
		},
	} {
		before := scans(index)
		if err := look(); err != nil {
			t.Fatal(err)
		}
		if scans(index) == before {
			t.Errorf("%s is not used", index)
		}
	}
}
