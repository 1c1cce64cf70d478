package postgres_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// buffers returns how many pages a claim touches once plans and catalogs are known.
func buffers(t *testing.T, s store.Store, pool *pgxpool.Pool, worker store.ID, limit int) int {
	t.Helper()
	c := acquire(t, pool)
	defer c.Release()
	least := 1 << 30
	for range 4 {
		pages, rows := touched(t, c, `
			select unnest(ids) from tusk_fn.claim($1, gen_random_uuid(), array[tusk_fn.lane_of('q', -32768)], $2, 0,
				false, false)`, [16]byte(worker), limit)
		if rows != limit {
			t.Fatalf("claimed %d of %d", rows, limit)
		}
		least = min(least, pages)
	}
	return least
}

// buffersOfOne is buffers for a claim of one task that takes the short way.
func buffersOfOne(t *testing.T, pool *pgxpool.Pool, worker store.ID) int {
	t.Helper()
	ctx := context.Background()
	c := acquire(t, pool)
	defer c.Release()
	if _, err := c.Exec(ctx, "set track_functions = 'pl'; "+postgres.InFunctions(claimByExchange)); err != nil {
		t.Fatal(err)
	}
	claims := func(tx pgx.Tx) (n int) {
		if err := tx.QueryRow(ctx, `
			select coalesce(sum(calls), 0)::int from pg_stat_xact_user_functions
			where schemaname = 'tusk' and funcname = 'claim'`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	least, short := 1<<30, 0
	for range 4 {
		if err := pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
			before := claims(tx)
			pages, _ := touched(t, tx, "select pg_temp.claim_one($1)", [16]byte(worker))
			if claims(tx) == before {
				least, short = min(least, pages), short+1
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if short == 0 {
		t.Error("no claim of one task went the short way")
	}
	return least
}

// claimByExchange calls the procedure that workers with one slot call, without an ended task.
const claimByExchange = `
	create or replace function pg_temp.claim_one(_worker uuid) returns void language plpgsql as $$
	declare
		lane bigint; id uuid; kind text; args bytea; enqueued_at timestamptz; attempt int; crashes int; run_at timestamptz;
		expires_at timestamptz; claimed_at timestamptz; tenant text; key text; tags text[]; settings bytea; workflow uuid;
		turn boolean; part text; finished boolean; freed text[];
	begin
		call tusk_fn.exchange(_worker, gen_random_uuid(), array[tusk_fn.lane_of('q', -32768)], 0,
			tusk_fn.lane_of('q', 0), null, null, null, null, null,
			lane, id, kind, args, enqueued_at, attempt, crashes, run_at, expires_at, claimed_at, tenant, key, tags, settings,
			workflow, turn, part, finished, freed);
		if id is null then
			raise 'claimed nothing';
		end if;
	end $$`

// touched runs a statement, and returns how many pages it touched and how many rows it returned.
func touched(t *testing.T, on interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, statement string, args ...any) (pages, rows int) {
	t.Helper()
	var text []byte
	if err := on.QueryRow(context.Background(), "explain (analyze, buffers, format json) "+postgres.InFunctions(statement),
		args...).Scan(&text); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	var plans []struct {
		Plan struct {
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
			Rows int `json:"Actual Rows"`
		}
	}
	if err := json.Unmarshal(text, &plans); err != nil {
		t.Fatal(err)
	}
	return plans[0].Plan.Hit + plans[0].Plan.Read, plans[0].Plan.Rows
}

func fill(t *testing.T, s store.Store, n int) {
	t.Helper()
	for range n / 5000 {
		if _, err := s.Enqueue(context.Background(), newTasks(5000, "q")); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAClaimCostsTheSameWhateverElseThereIs(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	w := startWorker(t, s)
	fill(t, s, 5000)
	alone, one := buffers(t, s, pool, w, 50), buffersOfOne(t, pool, w)
	fair := func(what string) {
		t.Helper()
		if got := buffersOfOne(t, pool, w); got > one*3/2+10 {
			t.Errorf("a claim of one task touches %d pages with %s, %d without", got, what, one)
		}
		if got := buffers(t, s, pool, w, 50); got > alone*3/2+10 {
			t.Errorf("a claim touches %d pages with %s, %d without", got, what, alone)
		} else {
			t.Logf("%d pages with %s", got, what)
		}
	}
	t.Logf("%d pages alone", alone)
	fill(t, s, 100000)
	fair("a backlog of 100,000 in a table without statistics")
	for range 30 { // history
		tasks, err := s.Claim(ctx, store.ClaimRequest{Worker: w, Queues: []string{"q"}, Limit: 1000, Token: store.NewToken()})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Finish(ctx, completed(tasks)); err != nil {
			t.Fatal(err)
		}
	}
	fair("a history of 30,000")
	later := newTasks(20000, "q")
	for i := range later {
		later[i].Delay = time.Hour
	}
	if _, err := s.Enqueue(ctx, later); err != nil {
		t.Fatal(err)
	}
	fair("20,000 scheduled")
	held := begin(t, pool)
	u := txOf(t, s, held)
	if _, err := u.Enqueue(ctx, newTasks(30000, "q")); err != nil {
		t.Fatal(err)
	}
	fair("30,000 uncommitted in the lane")
	if _, err := pool.Exec(ctx, "analyze"); err != nil {
		t.Fatal(err)
	}
	fair("statistics")
	if err := held.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	fair("30,000 rolled back")
}

func TestUncommittedRowsAreSteppedOverOnce(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	w := startWorker(t, s)
	fill(t, s, 5000)
	alone := buffers(t, s, pool, w, 50)
	drain := func() {
		for {
			tasks, err := s.Claim(ctx, store.ClaimRequest{Worker: w, Queues: []string{"q"}, Limit: 5000,
				Token: store.NewToken()})
			if err != nil {
				t.Fatal(err)
			}
			if len(tasks) == 0 {
				return
			}
		}
	}
	drain()
	held := begin(t, pool)
	u := txOf(t, s, held)
	if _, err := u.Enqueue(ctx, newTasks(30000, "q")); err != nil {
		t.Fatal(err)
	}
	drain() // this claim steps over them, and stores a position behind them
	if _, err := s.Enqueue(ctx, newTasks(500, "q")); err != nil {
		t.Fatal(err)
	}
	if got := buffers(t, s, pool, w, 50); got > 2*alone+20 {
		t.Errorf("a claim touches %d pages with 30,000 uncommitted rows before it, %d without", got, alone)
	}
	if err := held.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	tasks, err := s.Claim(ctx, store.ClaimRequest{Worker: w, Queues: []string{"q"}, Limit: 40000, Token: store.NewToken()})
	if err != nil || len(tasks) < 30000 {
		t.Fatalf("%d of the late rows, %v", len(tasks), err)
	}
}

// TestLateWritersAreLookedForOneByOne checks that a look at a lane that was claimed beside an open transaction
// reads what that transaction wrote, and not the whole lane, whatever the planner knows.
func TestLateWritersAreLookedForOneByOne(t *testing.T) {
	s, pool := fresh(t)
	w := startWorker(t, s)
	open := beginWriting(t, pool)
	for range 100 { // single rows, since each call has fewer tasks than a pack
		goRound(t, s, w, 50)
	}
	if _, err := s.Enqueue(t.Context(), newTasks(1, "q")); err != nil {
		t.Fatal(err)
	}
	if tasks, err := s.Claim(t.Context(), store.ClaimRequest{Worker: w, Queues: []string{"q"}, Limit: 2,
		Token: store.NewToken()}); err != nil || len(tasks) != 1 { // up to its end
		t.Fatal(len(tasks), err)
	}
	if err := open.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	looks := func(what string) {
		t.Helper()
		for _, look := range []string{
			"select tusk_fn.lanes_with_rows(array[tusk_fn.lane_of('q', -32768)])",
			strings.NewReplacer("$1", "1000", "$2", "1000").Replace(s.Statement("untidy_lanes")),
		} {
			pool.Reset()
			c := acquire(t, pool)
			if strings.Contains(look, "tally") { // which is planned in this way
				if _, err := c.Exec(t.Context(), strings.ReplaceAll(s.Statement("pin_each"), "true", "false")); err != nil {
					t.Fatal(err)
				}
			}
			least := 1 << 30
			for range 7 { // from the sixth call on with a generic plan
				pages, _ := touched(t, c, look)
				least = min(least, pages)
			}
			c.Release()
			if t.Logf("%d pages %s: %s", least, what, look); least > 40 {
				t.Errorf("%s touches %d pages %s", look, least, what)
			}
		}
	}
	looks("without statistics")
	if _, err := pool.Exec(t.Context(), "analyze"); err != nil {
		t.Fatal(err)
	}
	looks("with statistics")
}

func TestTheHotPathLeavesNoDeadRows(t *testing.T) {
	s, pool := fresh(t)
	w := startWorker(t, s)
	for range 50 {
		goRound(t, s, w, 100)
	}
	const changed = `select coalesce(sum(n_tup_upd + n_tup_del), 0)::bigint from pg_stat_user_tables
		where schemaname = 'tusk' and (relname like 'task\_%' or relname in ('outcome', 'lane_position'))`
	const added = "select coalesce(sum(n_tup_ins), 0)::bigint from pg_stat_user_tables where relname like 'task\\_%'"
	pool.Reset() // backends report their statistics when they end
	for deadline := time.Now().Add(20 * time.Second); number(t, pool, added) < 5000; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the server's statistics do not show the load")
		}
	}
	if n := number(t, pool, changed); n != 0 {
		t.Errorf("%d dead rows", n)
	}
}

func TestAnEmptyPollWritesNothing(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	w := startWorker(t, s)
	goRound(t, s, w, 10)
	poll := func() {
		if tasks, err := s.Claim(ctx, store.ClaimRequest{Worker: w, Queues: []string{"q", "none"}, Limit: 10,
			Token: store.NewToken()}); err != nil || len(tasks) > 0 {
			t.Fatal(len(tasks), err)
		}
	}
	for range 10 {
		poll()
	}
	const xid = "select pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
	before := number(t, pool, xid)
	for range 100 {
		poll()
	}
	if after := number(t, pool, xid); after > before+50 { // autovacuum takes some ids, in other databases, too
		t.Errorf("%d transactions wrote", after-before)
	}
}

func TestAClaimRefusesAnotherIsolationLevel(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	w := startWorker(t, s)
	if _, err := pool.Exec(ctx,
		"do $$ begin execute 'alter database ' || current_database() || ' set default_transaction_isolation = "+
			"''repeatable read'''; end $$"); err != nil {
		t.Fatal(err)
	}
	pool.Reset()
	if _, err := s.Claim(ctx, store.ClaimRequest{Worker: w, Queues: []string{"q"}, Limit: 1,
		Token: store.NewToken()}); err == nil {
		t.Fatal("claimed under repeatable read")
	}
	if _, err := s.Check(ctx); err == nil {
		t.Fatal("Check saw nothing")
	}
}

func TestOfManyIdleQueuesNoneIsVisitedForWhatOthersWroteLongAgo(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	w := startWorker(t, s)
	tx := beginWriting(t, pool)
	queues := []string{"a", "b", "c", "d", "e"}
	for _, q := range queues {
		if _, err := s.Enqueue(ctx, newTasks(1, q)); err != nil {
			t.Fatal(err)
		}
	}
	if tasks, err := s.Claim(ctx, store.ClaimRequest{Worker: w, Queues: queues, Limit: 10,
		Token: store.NewToken()}); err != nil || len(tasks) != 5 {
		t.Fatal(len(tasks), err)
	}
	users := txOf(t, s, tx)
	if _, err := users.Enqueue(ctx, newTasks(1, "c")); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	const visited = `select cardinality(tusk_fn.lanes_with_rows(array(
		select tusk_fn.lane_of(q, -32768) from unnest('{a,b,c,d,e}'::text[]) q)))`
	if n := number(t, pool, visited); n != 1 {
		t.Errorf("%d lanes are visited, want that of the late task alone", n)
	}
	if tasks, err := s.Claim(ctx, store.ClaimRequest{Worker: w, Queues: queues, Limit: 10,
		Token: store.NewToken()}); err != nil || len(tasks) != 1 {
		t.Fatal(len(tasks), err)
	}
	if n := number(t, pool, visited); n != 0 {
		t.Errorf("%d lanes are visited, want none", n)
	}
}

// TestNothingIsCompiled checks that every function that a statement calls turns JIT compilation off: the server
// takes tens of milliseconds to compile a plan that runs for one.
func TestNothingIsCompiled(t *testing.T) {
	_, pool := fresh(t)
	var called []string
	files, err := filepath.Glob("sql/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`tusk_fn\.(\w+)\(`).FindAllSubmatch(text, -1) {
			called = append(called, string(m[1]))
		}
	}
	if len(called) < 20 {
		t.Fatalf("only %d calls were found", len(called))
	}
	rows, err := pool.Query(t.Context(), postgres.InFunctions(`
		select p.proname from pg_proc p join pg_language l on l.oid = p.prolang
		where p.pronamespace = 'tusk_fn'::regnamespace and l.lanname = 'plpgsql' and p.prokind = 'f' and p.proname = any($1)
			and p.proconfig @> '{jit=off}' is not true
			and p.proname <> all('{ids_of,queue_of}') -- whose statements are cheap or pinned`), called)
	if err != nil {
		t.Fatal(err)
	}
	compiled, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(compiled) > 0 {
		t.Errorf("no \"set jit = off\" in %v, %v", compiled, err)
	}
}
