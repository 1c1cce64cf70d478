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
	"github.com/tuskqueue/tusk/store/postgres/pgtest"
)

func (l *limits) exec(query string) {
	l.Helper()
	if _, err := l.pool.Exec(l.Context(), query); err != nil {
		l.Fatal(err)
	}
}

// emptied fills line_1, lets tasks get in line in line_2, and grants those of line_1. The leader then finds it empty.
func (l *limits) emptied() {
	l.Helper()
	l.s.RestLine(time.Hour)
	ids := l.getInLine(2000)
	l.maintain()
	l.grant(ids)
	l.maintain()
}

// truncated reports whether line_1 was truncated.
func (l *limits) truncated() bool {
	l.Helper()
	l.maintain()
	return l.number("select pg_relation_size('tusk.line_1')") == 0
}

// A table that was truncated before rests as long as for the first time, even if a task comes and goes between two
// looks.
func TestATableOfLinesRestsEachTime(t *testing.T) {
	l := newLimits(t)
	l.emptied()
	if l.truncated() {
		t.Fatal("the table was truncated at once")
	}
	l.s.AgeLine(2 * time.Hour)
	if !l.truncated() {
		t.Fatal("the table was not truncated")
	}
	l.s.UseLine(1, 0) // its answer is from before the leader let tasks get in line in line_2
	ids := l.getInLine(1)
	if granted, err := l.rarely.Grant(t.Context(), l.term, ids); err != nil || granted != 1 {
		t.Fatal(granted, err)
	}
	if l.truncated() {
		t.Error("the table was truncated right after its last task was granted")
	}
}

// If a task gets in line in a table that rests, and is granted before the leader looks again, the rest begins anew.
func TestAGrantLetsATableOfLinesRestAgain(t *testing.T) {
	l := newLimits(t)
	l.emptied()
	l.s.AgeLine(2 * time.Hour)
	l.s.UseLine(1, 0)
	l.grant(l.getInLine(1))
	if l.truncated() {
		t.Error("the table was truncated right after its last task was granted")
	}
	l.s.AgeLine(2 * time.Hour)
	l.s.UseLine(2, 0)
	l.grant(l.getInLine(1))
	if !l.truncated() {
		t.Error("a grant from the other table made it rest longer")
	}
}

// A process that has not asked for long in which table tasks get in line uses neither of the two.
func TestAnOldAnswerIsNotReliedOn(t *testing.T) {
	l := newLimits(t)
	for i, age := range []time.Duration{time.Minute, -time.Minute, 0} { // the second one after the clock was set back
		l.s.UseLine(1, age)
		l.getInLine(1)
		if n := l.number("select count(*) from tusk.waiting"); n != int64(min(i+1, 2)) {
			t.Errorf("age %v: %d tasks are among the waiting ones", age, n)
		}
	}
}

// A process whose clock was set back does not wait until it shows the time of the last question again.
func TestTheTableOfLinesIsAskedForAfterTheClockWasSetBack(t *testing.T) {
	l := newLimits(t)
	l.s.UseLine(0, 0)
	l.s.AskedLine(-time.Hour)
	l.getInLine(1)
	if n := l.number("select count(*) from tusk.line_1"); n != 1 {
		t.Error("the process did not ask")
	}
}

// A table in which an open transaction has stored a task is not truncated, then or later, until the task has gone.
func TestATableOfLinesIsNotTruncatedBesideAnEnqueue(t *testing.T) {
	l := newLimits(t)
	l.emptied()
	l.s.RestLine(0)
	tx := begin(t, l.pool)
	l.s.UseLine(1, 0)
	tasks := newTasks(1, "q")
	tasks[0].Turn = true
	if _, err := txOf(t, l.s, tx).Enqueue(t.Context(), tasks); err != nil {
		t.Fatal(err)
	}
	if l.truncated() {
		t.Error("the table was truncated while the transaction was open")
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if l.truncated() {
		t.Error("the table was truncated while it had a task")
	}
	l.grant([]store.ID{tasks[0].ID})
	if !l.truncated() {
		t.Error("the table was not truncated")
	}
}

// While pg_dump is connected, no table of lines is truncated: it may have taken its snapshot, and lock the table later.
func TestNoTableOfLinesIsTruncatedBesideADump(t *testing.T) {
	l := newLimits(t)
	config := l.pool.Config().ConnConfig.Copy()
	config.RuntimeParams["application_name"] = "pg_dump"
	dump, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer dump.Close(context.Background())
	l.emptied()
	l.s.RestLine(0)
	if l.truncated() {
		t.Error("the table was truncated")
	}
	if err := dump.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the table is truncated", l.truncated)
}

// The transaction that truncates waits for nothing and nobody for long, because all others wait for it.
func TestATruncationIsBrief(t *testing.T) {
	l := newLimits(t)
	l.exec(`
		create table public.seen (setting text, value text);
		create function public.see() returns trigger language plpgsql as $$ begin
			insert into public.seen select x, current_setting(x)
			from unnest(array['lock_timeout', 'statement_timeout', 'synchronous_commit',
				'idle_in_transaction_session_timeout']) x;
			perform pg_sleep((select count(*) - 4 from public.seen));
			return null;
		end $$;
		create trigger see before truncate on tusk.line_1 execute function public.see();
		insert into public.seen select 'slow', n from generate_series(1, 10) n`)
	l.emptied()
	l.s.RestLine(0)
	if l.truncated() {
		t.Error("the truncation took seconds")
	}
	l.exec("truncate public.seen")
	if !l.truncated() {
		t.Error("the table was not truncated")
	}
	for setting, want := range map[string]string{"lock_timeout": "50ms", "statement_timeout": "250ms",
		"synchronous_commit": "off", "idle_in_transaction_session_timeout": "10s"} {
		if n := l.number("select count(*) from public.seen where setting = '" + setting + "' and value = '" + want +
			"'"); n != 1 {
			t.Errorf("%s is not %s", setting, want)
		}
	}
}

// A role that may not truncate leads nonetheless. Check names the missing right.
func TestARoleThatMayNotTruncateLeads(t *testing.T) {
	dsn := pgtest.DSN(t)
	crew := roles(t, dsn)("work")
	_, pool := open(t, dsn, false)
	s, err := postgres.New(t.Context(), crew, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	l := &limits{t, s, s, pool, lead(t, s), startWorker(t, s)}
	var name string
	if err := crew.QueryRow(t.Context(), "select current_user").Scan(&name); err != nil {
		t.Fatal(err)
	}
	grant := "grant truncate on tusk.line_1, tusk.line_2 to " + name
	l.exec(strings.NewReplacer("grant", "revoke", " to ", " from ").Replace(grant))
	warned := func(warning string) bool { return strings.HasSuffix(warning, grant) }
	if warnings, err := s.Check(t.Context()); err != nil || !slices.ContainsFunc(warnings, warned) {
		t.Error(warnings, err)
	}
	s.RestLine(0)
	for range 2 {
		l.grant(l.getInLine(2000))
		l.maintain()
	}
	if n := l.number("select count(*) from tusk.unready"); n != 0 || l.truncated() {
		t.Errorf("%d tasks were not granted, or a table was truncated", n)
	}
	l.exec(grant)
	if warnings, err := s.Check(t.Context()); err != nil || slices.ContainsFunc(warnings, warned) {
		t.Error(warnings, err)
	}
	l.maintain() // lets tasks get in line in the other table
	if !l.truncated() {
		t.Error("the table was not truncated")
	}
}

// A task stays where it is if the other table has one with the same id. The others move.
func TestATaskWithTheIDOfAnotherStaysInItsTable(t *testing.T) {
	l := newLimits(t)
	first := l.getInLine(2000)
	l.maintain()
	twin := newTasks(1, "q")
	twin[0].ID, twin[0].Turn = first[0], true
	if _, err := l.s.Enqueue(t.Context(), twin); err != nil {
		t.Fatal(err)
	}
	l.getInLine(2000)
	l.grant(first[2:])
	l.maintain()
	if n := l.number("select count(*) from tusk.line_1"); n != 1 {
		t.Errorf("%d tasks are where they were, want 1", n)
	}
	if n := number(t, l.pool, "select count(*) from tusk.line_2 where id = $1", [16]byte(first[1])); n != 1 {
		t.Error("the other task did not move")
	}
}

// One transaction moves no more than some MiB of args.
func TestLargeTasksInLineMoveInSeveralTransactions(t *testing.T) {
	l := newLimits(t)
	tasks := newTasks(12, "q")
	for i := range tasks {
		tasks[i].Turn, tasks[i].Args = true, make([]byte, 1<<20)
	}
	if _, err := l.s.Enqueue(t.Context(), tasks); err != nil {
		t.Fatal(err)
	}
	l.exec("insert into tusk.program (name, version) values ('tusk_f0', 12)")
	l.maintain()
	if n := l.number("select max(n) from (select count(*) as n from tusk.waiting group by xmin::text) x"); n != 8 {
		t.Errorf("a transaction moved %d tasks, want 8", n)
	}
	if n := l.number("select count(*) from tusk.waiting"); n != 12 {
		t.Errorf("%d of 12 tasks moved", n)
	}
}
