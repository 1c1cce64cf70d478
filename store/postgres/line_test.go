package postgres_test

import (
	"context"
	"crypto/rand"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tuskqueue/tusk/store"
)

const lineSizes = "select pg_relation_size('tusk.line_1') + pg_relation_size('tusk.line_2')"

// getInLine stores n tasks of two tenants that wait for their turn, and returns their ids.
func (l *limits) getInLine(n int) []store.ID {
	l.Helper()
	tasks, ids := newTasks(n, "q"), make([]store.ID, n)
	for i := range tasks {
		tasks[i].Turn, tasks[i].Tenant, tasks[i].Args = true, []string{"a", "b"}[i%2], make([]byte, 1000)
		ids[i] = tasks[i].ID
	}
	if _, err := l.s.Enqueue(l.Context(), tasks); err != nil {
		l.Fatal(err)
	}
	return ids
}

func (l *limits) grant(ids []store.ID) {
	l.Helper()
	if granted, err := l.s.Grant(l.Context(), l.term, ids); err != nil || granted != len(ids) {
		l.Fatal(granted, err)
	}
}

func (l *limits) maintain() {
	l.Helper()
	if err := l.s.Maintain(l.Context(), l.term); err != nil {
		l.Fatal(err)
	}
}

func (l *limits) number(query string) int64 {
	l.Helper()
	return number(l, l.pool, query)
}

// reader is an open transaction that has read the log and whose snapshot lasts.
func (l *limits) reader() {
	l.Helper()
	tx, err := l.pool.BeginTx(l.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	var n int
	if err := tx.QueryRow(l.Context(), "select count(*) from tusk.log").Scan(&n); err != nil {
		l.Fatal(err)
	}
}

// Grants leave nothing for vacuum, though a transaction keeps vacuum from doing anything: the tables of lines are
// truncated in turn.
func TestGrantsLeaveNothingForVacuum(t *testing.T) {
	l := newLimits(t)
	l.reader()
	l.s.RestLine(0)
	for range 3 {
		ids := l.getInLine(2000)
		l.grant(ids)
		for range 4 {
			l.maintain()
		}
		l.finish(claimSome(t, l.s, l.worker, len(ids)))
	}
	if size := l.number(lineSizes); size != 0 {
		t.Errorf("%d bytes are left in the tables of lines", size)
	}
	if n := l.number("select count(*) from tusk.unready"); n != 0 {
		t.Errorf("%d tasks are left", n)
	}
}

// However many tasks one call stores, alone or in a user's transaction, they get in line in the tables that are
// truncated.
func TestAllNewTasksGetInLineInTheSameTable(t *testing.T) {
	l := newLimits(t)
	for _, n := range []int{1, 5, 200} {
		l.getInLine(n)
	}
	tx, err := l.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	in, err := l.s.Tx(tx)
	if err != nil {
		t.Fatal(err)
	}
	tasks := newTasks(3, "q")
	for i := range tasks {
		tasks[i].Turn, tasks[i].Partition, tasks[i].Tags = true, "p", []string{"a,b", "c"}
	}
	if _, err := in.Enqueue(t.Context(), tasks); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := l.number("select count(*) from tusk.line_1"); n != 209 {
		t.Errorf("%d of 209 tasks", n)
	}
	if n := l.number("select count(*) from tusk.line_1 where partition = 'p' and tags = array['a,b', 'c']"); n != 3 {
		t.Errorf("%d of 3 tasks in the user's transaction", n)
	}
}

// A table is not truncated while it has tasks, nor right after its last task has gone: a statement that began before
// may still look for that task.
func TestATableOfLinesRestsBeforeItIsTruncated(t *testing.T) {
	l := newLimits(t)
	ids := l.getInLine(2000)
	l.maintain() // from now on, tasks get in line in the other table
	l.grant(ids)
	for range 3 {
		l.maintain()
	}
	if size := l.number(lineSizes); size == 0 {
		t.Error("the table was truncated at once")
	}
	l.s.RestLine(0)
	l.maintain()
	if size := l.number(lineSizes); size != 0 {
		t.Errorf("%d bytes are left", size)
	}
}

// The last tasks of a table that is to be truncated move, and keep their places in line.
func TestTasksMoveToTheOtherTableOfLinesInOrder(t *testing.T) {
	l := newLimits(t)
	l.s.RestLine(0)
	first := l.getInLine(3000)
	l.maintain()
	second := l.getInLine(2000)
	l.grant(first[500:])
	l.maintain()
	l.maintain()
	l.maintain()
	turns, err := l.s.Turns(l.Context(), l.term, 10, 5000)
	if err != nil {
		t.Fatal(err)
	}
	all := slices.Concat(first[:500], second)
	for i, g := range turns {
		var want []store.ID
		for k := i; k < len(all); k += 2 {
			want = append(want, all[k])
		}
		if !slices.Equal(g.Waiting, want) {
			t.Errorf("tenant %q: another order", g.Tenant)
		}
	}
	if n := l.number("select (select count(*) from tusk.line_1) * (select count(*) from tusk.line_2)"); n != 0 {
		t.Error("both tables have tasks")
	}
	l.grant(all)
	if n := len(claimSome(t, l.s, l.worker, 5000)); n != 5000 {
		t.Errorf("%d tasks were claimed", n)
	}
}

// Older programs know neither table: while one might run, tasks get in line among the waiting ones.
func TestAnOlderProgramFindsTheTasksInLine(t *testing.T) {
	l := newLimits(t)
	if _, err := l.pool.Exec(t.Context(), "insert into tusk.program (name, version) values ('tusk_f0', 12)"); err != nil {
		t.Fatal(err)
	}
	ids := l.getInLine(3)
	if n := l.number("select count(*) from tusk.waiting"); n != 3 {
		t.Fatalf("%d tasks are among the waiting ones", n)
	}
	l.maintain()
	l.grant(ids)
}

// The leader moves tasks to where an older program finds them, if one is installed again.
func TestTasksInLineMoveToWhereAnOlderProgramFindsThem(t *testing.T) {
	l := newLimits(t)
	ids := l.getInLine(3)
	if _, err := l.pool.Exec(t.Context(), "insert into tusk.program (name, version) values ('tusk_f0', 12)"); err != nil {
		t.Fatal(err)
	}
	l.maintain()
	if n := l.number("select count(*) from tusk.waiting"); n != 3 {
		t.Fatalf("%d tasks are among the waiting ones", n)
	}
	l.grant(ids)
}

// A table with large args does not move.
func TestLargeTasksInLineDoNotMove(t *testing.T) {
	l := newLimits(t)
	tasks := newTasks(12, "q")
	for i := range tasks {
		tasks[i].Turn, tasks[i].Args = true, make([]byte, 1<<20)
		_, _ = rand.Read(tasks[i].Args) // so that it is not compressed
	}
	if _, err := l.s.Enqueue(t.Context(), tasks); err != nil {
		t.Fatal(err)
	}
	l.maintain()
	l.getInLine(3000) // in the other table, which is full then
	l.maintain()
	if n := l.number("select count(*) from tusk.line_1"); n != 12 {
		t.Errorf("%d of 12 tasks are where they were", n)
	}
}
