package postgres_test

import (
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// limits is a queue whose limits the test handles itself.
type limits struct {
	*testing.T
	s      *postgres.Store
	rarely *postgres.Store // of a process that looks now and then
	pool   *pgxpool.Pool
	term   int64
	worker store.ID
}

func newLimits(t *testing.T) *limits {
	s, pool := fresh(t)
	rarely, err := postgres.New(t.Context(), pool, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rarely.Close() })
	return &limits{t, s, rarely, pool, lead(t, s), startWorker(t, s)}
}

// granted enqueues n tasks of two tenants, and grants them their turns.
func (l *limits) granted(n int) {
	l.Helper()
	tasks := newTasks(n, "q")
	for i := range tasks {
		tasks[i].Turn, tasks[i].Tenant, tasks[i].Partition = true, []string{"a", "b"}[i%2], "p"
	}
	if _, err := l.s.Enqueue(l.Context(), tasks); err != nil {
		l.Fatal(err)
	}
	ids := make([]store.ID, n)
	for i := range tasks {
		ids[i] = tasks[i].ID
	}
	if granted, err := l.s.Grant(l.Context(), l.term, ids); err != nil || granted != n {
		l.Fatal(granted, err)
	}
}

func (l *limits) finish(tasks []store.Task) {
	l.Helper()
	if lost, err := l.s.Finish(l.Context(), completed(tasks)); err != nil || len(lost) > 0 {
		l.Fatal(lost, err)
	}
}

// held checks how many tasks have their turn, for each process that asks.
func (l *limits) held(want int64) {
	l.Helper()
	for term, s := range map[int64]*postgres.Store{0: l.rarely, l.term: l.s} {
		if n := l.holders(s, term); n != want {
			l.Fatalf("term %d: %d tasks have their turn, want %d", term, n, want)
		}
	}
}

// holders counts the tasks that have their turn.
func (l *limits) holders(s *postgres.Store, term int64) (n int64) {
	l.Helper()
	turns, err := s.Turns(l.Context(), term, 100, 100)
	if err != nil {
		l.Fatal(err)
	}
	for _, g := range turns {
		n += g.Held
	}
	return n
}

// sums sums up the rows of turns over and over.
func (l *limits) sums() {
	l.Helper()
	for range 3 {
		for range 70 {
			l.granted(1)
			l.finish(claimSome(l.T, l.s, l.worker, 1))
		}
		if _, err := l.s.Turns(l.Context(), l.term, 100, 100); err != nil {
			l.Fatal(err)
		}
		if n := number(l, l.pool, "select count(*) from tusk.held"); n > 10 {
			l.Fatalf("%d rows of turns are left", n)
		}
	}
}

// Turns are the sum of rows of many tasks, and have no rows of their own.
func TestATurnLeavesNoDeadRow(t *testing.T) {
	l := newLimits(t)
	const n = 2000
	for range n / 200 {
		l.granted(200)
		for part := range slices.Chunk(claimSome(t, l.s, l.worker, 200), 50) {
			l.finish(part)
		}
		l.held(0)
	}
	const dead = `select coalesce(sum(n_tup_upd + n_tup_del), 0)::bigint from pg_stat_all_tables
		where schemaname in ('tusk', 'pg_toast') and relname <> 'waiting' and relname !~ '^line'`
	l.pool.Reset() // backends report their statistics when they end
	eventually(t, "the server's statistics show the load", func() bool {
		return l.number("select sum(n_tup_del)::bigint from pg_stat_user_tables where relname ~ '^(waiting|line)'") == n
	})
	if dead := number(t, l.pool, dead); dead > n/20 {
		t.Errorf("%d dead rows of %d tasks, beside those of the line", dead, n)
	}
}

// A turn that a transaction gives back counts once the transaction has committed, however often turns were summed
// up in the meantime.
func TestTurnsAreSummedUpBesideOpenTransactions(t *testing.T) {
	l := newLimits(t)
	ctx := t.Context()
	l.granted(3)
	tasks := claimSome(t, l.s, l.worker, 3)
	for i, commit := range []bool{true, false} {
		tx, err := l.pool.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback(ctx)
		inside, err := l.s.Tx(tx)
		if err != nil {
			t.Fatal(err)
		}
		finish(t, inside, tasks[i:i+1])
		l.sums()
		l.held(3 - int64(i))
		end := tx.Rollback
		if commit {
			end = tx.Commit
		}
		if err := end(ctx); err != nil {
			t.Fatal(err)
		}
		l.held(2)
		l.sums()
		l.held(2)
	}
	l.finish(tasks[1:])
	l.held(0)
}

// A task that is to be retried either gives its turn back, or keeps it and needs no other. The same holds for a
// task that is handed back.
func TestATaskThatRunsAgainHasItsTurnOrNot(t *testing.T) {
	l := newLimits(t)
	l.granted(4)
	tasks := claimSome(t, l.s, l.worker, 4)
	outcomes := completed(tasks)
	for i := range outcomes {
		outcomes[i].State, outcomes[i].Error = store.Retryable, "failed"
	}
	outcomes[0].KeepTurn = true
	outcomes[2].State, outcomes[2].Error, outcomes[2].Attempt = store.Available, "", 0
	outcomes[3].State, outcomes[3].Delay, outcomes[3].KeepTurn = store.Scheduled, time.Hour, true
	if lost, err := l.s.Finish(t.Context(), outcomes); err != nil || len(lost) > 0 {
		t.Fatal(lost, err)
	}
	l.held(3)
	if _, err := l.s.Admit(t.Context(), l.term, 100); err != nil {
		t.Fatal(err)
	}
	l.held(3)
	turns, err := l.s.Turns(t.Context(), l.term, 100, 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range turns {
		for _, id := range g.Waiting {
			if id != tasks[1].ID {
				t.Errorf("task %s waits for another turn", id)
			}
		}
	}
	if _, err := l.s.Edit(t.Context(), store.Edit{IDs: []store.ID{tasks[3].ID},
		Change: store.Change{Op: store.Cancel}}); err != nil {
		t.Fatal(err)
	}
	l.held(2)
	l.finish(claimSome(t, l.s, l.worker, 2))
	l.held(0)
}

// Programs of the previous release write the view, and migrations keep the turns.
func TestTurnsOfOtherProgramsAndVersions(t *testing.T) {
	l := newLimits(t)
	ctx := t.Context()
	l.granted(4)
	tasks := claimSome(t, l.s, l.worker, 4)
	l.finish(tasks[:1])
	if _, err := l.pool.Exec(ctx, "delete from tusk.turn where id = any($1)", [][16]byte{tasks[1].ID}); err != nil {
		t.Fatal(err)
	}
	l.held(2)
	if _, err := l.pool.Exec(ctx, `
		with added as (insert into tusk.turn (id, queue, tenant, partition) select $1, $2::bigint, 'c', '')
		select 1`, [16]byte(tasks[1].ID), 12345); err != nil {
		t.Fatal(err)
	}
	l.held(3)
	if _, err := l.pool.Exec(ctx, `
		insert into tusk.turn (id, queue, tenant, partition)
		select gen_random_uuid(), 12345, 'many', '' from generate_series(1, 2000)`); err != nil {
		t.Fatal(err)
	}
	l.held(2003)
	if n := number(t, l.pool, "select count(*) from tusk.held"); n > 600 {
		t.Errorf("%d rows of what an older program granted are left", n)
	}
	if _, err := l.pool.Exec(ctx, `delete from tusk.turn where tenant = 'many'`); err != nil {
		t.Fatal(err)
	}
	l.held(3)
	all, err := l.s.Migrations(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []int64{7, all[len(all)-1].Version} {
		if _, err := l.s.Migrate(ctx, version); err != nil {
			t.Fatal(err)
		}
		if n := number(t, l.pool, "select count(*) from tusk.turn where tenant in ('a', 'b', 'c')"); n != 3 {
			t.Fatalf("version %d: %d tasks have their turn, want 3", version, n)
		}
	}
	l.held(3)
	l.finish(tasks[1:])
	l.held(0)
}

// A process soon forgets turns that a database lost in a failover.
func TestTurnsThatADatabaseLostAreForgotten(t *testing.T) {
	l := newLimits(t)
	l.s.HoldersFor(100 * time.Millisecond)
	l.granted(2)
	l.held(2)
	if _, err := l.pool.Exec(t.Context(), "delete from tusk.held where seen is null"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the lost turns are forgotten", func() bool { return l.holders(l.s, l.term) == 0 })
}

// A look reads what is new, not the rows that an earlier look has read.
func TestALookForTurnsReadsWhatIsNew(t *testing.T) {
	l := newLimits(t)
	c := acquire(t, l.pool)
	defer c.Release()
	if _, err := c.Exec(t.Context(), `set enable_seqscan = off; set enable_bitmapscan = off; set enable_sort = off;
		prepare look as `+l.s.Statement("turns_since")); err != nil {
		t.Fatal(err)
	}
	look := func() (pages, rows int) {
		var sum, seen string
		err := c.QueryRow(t.Context(), `
			select max(seq)::text, pg_current_snapshot()::text from tusk.held where seen is not null`).Scan(&sum, &seen)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // planning reads its pages first
			pages, rows = touched(t, c, "execute look("+sum+", '"+seen+"')")
		}
		return pages, rows
	}
	before, _ := look()
	if _, err := c.Exec(t.Context(), "insert into tusk.held (back, ids) select true, array[gen_random_uuid()] from "+
		"generate_series(1, 5000)"); err != nil {
		t.Fatal(err)
	}
	if after, rows := look(); rows != 1 || after > before+5 {
		t.Errorf("a look reads %d pages for %d rows, and %d before", after, rows, before)
	}
}

// Rows that are summed up are gone, and still in the index while a transaction is open.
func TestHoldersOfTurnsAreFoundWhateverThePlannerBelieves(t *testing.T) {
	_, pool := fresh(t)
	ctx := t.Context()
	for _, text := range []string{
		"insert into tusk.held (xid, ids) select '5', '{}' from generate_series(1, 20000)",
		"insert into tusk.held (xid, seen, ids) values ('30', '10:20:15', '{}')",
		"insert into tusk.held (xid, ids) values ('15', '{}')",
		"analyze tusk.held",
		"update pg_class set reltuples = 2, relpages = 1000 where oid = 'tusk.held'::regclass",
	} {
		if _, err := pool.Exec(ctx, text); err != nil {
			t.Fatal(err)
		}
	}
	if pages, rows := touched(t, pool, "select * from tusk.held_row"); pages > 40 || rows != 2 {
		t.Errorf("%d rows, %d pages", rows, pages)
	}
}
