package postgres_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

func TestQueuesOfAnotherRetentionHaveTablesThatGoByThemselves(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	term, w := lead(t, s), startWorker(t, s)
	turn := func(keep store.Retention) {
		t.Helper()
		for {
			n, err := s.Prune(ctx, term, keep, 1000)
			if err != nil {
				t.Fatal(err)
			}
			if n < 1000 {
				break
			}
		}
		if err := s.Maintain(ctx, term); err != nil {
			t.Fatal(err)
		}
	}
	keep := store.Retention{Completed: time.Hour, Queues: map[string]store.Retention{
		"brief": {Completed: time.Microsecond}, "audit": {Completed: 0}, "alike": {Completed: 90 * time.Minute}}}
	cost := func() (pages int) {
		t.Helper()
		fill(t, s, 5000)
		pages = buffers(t, s, pool, w, 50)
		tasks, err := s.Claim(ctx, store.ClaimRequest{Worker: w, Queues: []string{"q"}, Limit: 10000,
			Token: store.NewToken()})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Finish(ctx, completed(tasks)); err != nil {
			t.Fatal(err)
		}
		if _, err := pool.Exec(ctx, "delete from tusk.lease"); err != nil {
			t.Fatal(err)
		}
		return pages
	}
	one := cost()
	if _, err := s.Prune(ctx, term, store.Retention{Completed: time.Microsecond}, 10000); err != nil {
		t.Fatal(err)
	}
	shrink(t, pool)
	turn(keep) // the segment after the next one has three tables
	advance(t, pool)
	turn(keep)
	advance(t, pool)
	turn(keep)
	name := ""
	err := pool.QueryRow(ctx,
		"select segment from tusk.segment_part p join tusk.segment s on s.name = p.segment order by s.hi limit 1").Scan(&name)
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{"q", "brief", "audit", "alike"} {
		goRoundOf(t, s, w, q, 20)
	}
	rows := func(part string) int64 {
		t.Helper()
		if number(t, pool, "select count(*) from pg_class where relname = $1", name+"_"+part) == 0 {
			return -1
		}
		return number(t, pool, "select count(*) from tusk."+name+"_"+part)
	}
	if short, long, rest := rows("short"), rows("long"), rows("rest"); short != 20 || long != 20 || rest != 40 {
		t.Fatalf("%d in the table of the short, %d in that of the long, %d in that of the rest", short, long, rest)
	}
	advance(t, pool)
	turn(keep)
	turn(keep)
	if rows("short") != -1 || rows("long") != 20 || rows("rest") != 40 {
		t.Fatalf("%d, %d, %d rows: want the table of the short to be gone alone", rows("short"), rows("long"), rows("rest"))
	}
	if list, err := s.List(ctx, store.Filter{}); err != nil || len(list) != 60 {
		t.Fatal(len(list), err)
	}
	keep.Completed = time.Microsecond
	keep.Queues["alike"] = store.Retention{Completed: time.Microsecond}
	turn(keep)
	if rows("rest") != -1 || rows("long") != 20 {
		t.Fatalf("%d, %d rows: want those of the long alone", rows("rest"), rows("long"))
	}
	delete(keep.Queues, "audit")
	turn(keep)
	if n := number(t, pool, "select count(*) from pg_class where relname like $1", name+"%"); n != 0 {
		t.Errorf("%d of its tables and indexes are left", n)
	}
	if n := number(t, pool, "select count(*) from tusk.segment_part where segment = $1", name); n != 0 {
		t.Errorf("%d of its parts are remembered", n)
	}
	for _, q := range []string{"q", "brief", "audit"} {
		goRoundOf(t, s, w, q, 20)
	}
	if pages := cost(); pages > one*3/2+10 {
		t.Errorf("a claim touches %d pages in segments of three tables, %d in those of one", pages, one)
	} else {
		t.Logf("a claim touches %d pages, in segments of one table %d", pages, one)
	}
}

// Flushes that a queue keeps for long are in front of flushes that other queues no longer keep.
func TestPruningGoesOnBehindWhatIsKeptForLonger(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	term, w := lead(t, s), startWorker(t, s)
	const rounds, looks = 20, 7
	for range rounds {
		goRoundOf(t, s, w, "audit", 2)
		goRoundOf(t, s, w, "q", 2)
	}
	s.PruneLooks(looks)
	keep := store.Retention{Completed: time.Microsecond,
		Queues: map[string]store.Retention{"audit": {Completed: time.Hour}}}
	for call := range 2*rounds/looks + 1 {
		n, err := s.Prune(ctx, term, keep, 1000)
		if err != nil {
			t.Fatal(err)
		}
		if n > looks+1 {
			t.Errorf("call %d deleted %d tasks of at most %d flushes", call, n, looks)
		}
	}
	if n := number(t, pool, "select count(*) from tusk.tasks where queue = 'q'"); n != 0 {
		t.Errorf("%d tasks are left that are over", n)
	}
	if n := number(t, pool, "select count(*) from tusk.tasks where queue = 'audit'"); n != 2*rounds {
		t.Errorf("%d tasks of %d are kept", n, 2*rounds)
	}
	goRoundOf(t, s, w, "q", 2)
	for range 2*rounds/looks + 1 { // until it begins again with the oldest
		if _, err := s.Prune(ctx, term, keep, 1000); err != nil {
			t.Fatal(err)
		}
	}
	if n := number(t, pool, "select count(*) from tusk.tasks where queue = 'q'"); n != 0 {
		t.Errorf("%d tasks are left that ended after the last round", n)
	}
}

// The tasks of flushes are counted without reading their ids, whether these are in the row or not.
func TestPruningCountsTheTasksOfLargeFlushesByTheirSize(t *testing.T) {
	s, pool := fresh(t)
	ctx := t.Context()
	want := []int64{0, 1, 6, 7, 8, 100, 490, 500, 510, 520}
	for range 20 {
		want = append(want, 2000)
	}
	if _, err := pool.Exec(ctx, `
		insert into tusk.outcome (lane, node, lo, token, worker, claimed_at, finished_at, keyed, firsts)
		select 1, 1, '3', gen_random_uuid(), gen_random_uuid(), now(), now() - interval '1 hour', 0,
			array(select gen_random_uuid() from generate_series(1, n))
		from unnest($1::bigint[]) n`, want); err != nil {
		t.Fatal(err)
	}
	text := s.Statement("spent_flushes")
	args := []any{0, 1, 1, []int64{}, []int64{}, "1:999999999:", 100}
	rows, err := pool.Query(ctx, text, args...)
	if err != nil {
		t.Fatal(err)
	}
	counts, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (n int64, err error) {
		return n, row.Scan(nil, nil, nil, nil, &n, nil)
	})
	if slices.Sort(counts); err != nil || !slices.Equal(counts, want) {
		t.Fatalf("counted %v, %v", counts, err)
	}
	if pages, _ := touched(t, pool, text, args...); pages > 50 {
		t.Errorf("%d pages are read for %d flushes", pages, len(want))
	}
}

// A call of Prune ends in the middle of a flush in which only some tasks have a key.
func TestPruningTakesAFlushApartWhoseTasksHaveKeysInPart(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	term, w := lead(t, s), startWorker(t, s)
	for _, keyed := range []int{0, 5} { // the first task to be deleted, and the last
		tasks := newTasks(6, "q")
		tasks[keyed].Key = "k"
		if _, err := s.Enqueue(ctx, tasks); err != nil {
			t.Fatal(err)
		}
		finish(t, s, claimSome(t, s, w, 6))
		for range 3 {
			if n, err := s.Prune(ctx, term, store.Retention{Completed: time.Microsecond}, 2); err != nil || n != 2 {
				t.Fatalf("of a flush whose task %d has a key, %d of 2 went: %v", keyed, n, err)
			}
		}
		if n := number(t, pool, "select (select count(*) from tusk.key) + (select count(*) from tusk.outcome)"); n != 0 {
			t.Errorf("%d keys and flushes are left", n)
		}
	}
}

// Tasks that are too young for every queue are not read each time, since most failed tasks are kept for days.
func TestPruningReadsNoFailuresThatAreTooYoungToGo(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	c := acquire(t, pool)
	defer c.Release()
	if _, err := c.Exec(ctx, strings.ReplaceAll(s.Statement("pin_order"), "true", "false")); err != nil {
		t.Fatal(err)
	}
	keep, none := []int64{0, 3_600_000_000, 7_200_000_000}, []int64{}
	read := func() int {
		t.Helper()
		pages := 0
		for range 2 { // the first round makes plans
			pages, _ = touched(t, c, s.Statement("spent_dead"), keep, none, none, none, none, 2000, time.Time{},
				100_000)
		}
		return pages
	}
	before := read()
	if _, err := pool.Exec(ctx, postgres.InFunctions(`
		insert into tusk.dead (id, state, lane, run_at, enqueued_at, attempt, crashes, kind, args, reason, finished_at)
		select tusk_fn.new_id(), 7 + i % 2, 0, now(), now(), 1, 0, 'job', '{}', '', now()
		from generate_series(1, 5000) i`)); err != nil {
		t.Fatal(err)
	}
	if after := read(); after > before+50 {
		t.Errorf("pruning touches %d pages where nothing is to go, and %d without tasks", after, before)
	}
}

// The same holds for failures that a queue keeps for long.
func TestPruningGoesOnBehindFailuresThatAreKeptForLonger(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	term := lead(t, s)
	const rounds, looks = 20, 7
	if _, err := pool.Exec(ctx, postgres.InFunctions(`
		insert into tusk.dead (id, state, lane, run_at, enqueued_at, attempt, crashes, kind, args, reason, finished_at)
		select tusk_fn.new_id(), 8, tusk_fn.lane_of(case when i % 2 = 0 then 'audit' else 'q' end, 0), now(), now(), 1,
			0, 'job', '{}', '', now() - interval '1 minute' + i / 4 * interval '1 ms'
		from generate_series(1, $1) i`), 4*rounds); err != nil {
		t.Fatal(err)
	}
	s.PruneLooks(looks)
	keep := store.Retention{Discarded: time.Microsecond,
		Queues: map[string]store.Retention{"audit": {Discarded: time.Hour}}}
	left := func(queue string) int64 {
		return number(t, pool, "select count(*) from tusk.dead where lane = tusk_fn.lane_of($1, 0)", queue)
	}
	calls := 4*rounds/looks + 1
	for call := range calls {
		n, err := s.Prune(ctx, term, keep, 1000)
		if err != nil {
			t.Fatal(err)
		}
		if n > looks+4 {
			t.Errorf("call %d deleted %d tasks of %d that it was to look at", call, n, looks)
		}
	}
	if q, audit := left("q"), left("audit"); q != 0 || audit != 2*rounds {
		t.Errorf("%d tasks are left that are over, and %d of %d that are kept", q, audit, 2*rounds)
	}
	_, err := pool.Exec(ctx, postgres.InFunctions(`update tusk.dead set lane = tusk_fn.lane_of('q', 0)`))
	if err != nil {
		t.Fatal(err)
	}
	for range calls { // until it begins again with the oldest
		if _, err := s.Prune(ctx, term, keep, 1000); err != nil {
			t.Fatal(err)
		}
	}
	if n := left("q"); n != 0 {
		t.Errorf("%d tasks are left that came behind the hand", n)
	}
}
