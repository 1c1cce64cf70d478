package postgres_test

import (
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// A program of the previous release leads while line_1 has tasks: it was installed again after others had gone. It
// grants the tasks that it finds, and none of the others is lost.
func TestAnOlderProgramLeadsBesideAFilledLine(t *testing.T) {
	l := newLimits(t)
	hidden := l.getInLine(3)
	older, err := postgres.NewFormer(l.pool)
	if err != nil {
		t.Fatal(err)
	}
	defer older.Close()
	if _, err := older.Migrate(t.Context(), -1); err != nil {
		t.Fatal(err)
	}
	l.exec("update tusk.program set version = 12 where name = '" + older.FunctionSchema() + "'")
	l.s.AskedLine(time.Minute)
	found := l.getInLine(3)
	next := func(s *postgres.Store) int64 {
		t.Helper()
		l.exec("update tusk.leader set expires_at = '-infinity'")
		return lead(t, s)
	}
	waiting := func(term int64) (ids []store.ID) {
		t.Helper()
		turns, err := older.Turns(t.Context(), term, 10, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range turns {
			ids = append(ids, g.Waiting...)
		}
		return ids
	}
	term := next(older)
	if ids := waiting(term); len(ids) != 3 {
		t.Fatalf("the older program finds %d tasks, want the 3 new ones", len(ids))
	}
	if n, err := older.Grant(t.Context(), term, found); err != nil || n != 3 {
		t.Fatal(n, err)
	}
	l.term = next(l.s)
	l.maintain()
	if ids := waiting(0); len(ids) != 3 {
		t.Errorf("the older program finds %d tasks, want the 3 that were in line_1", len(ids))
	}
	l.grant(hidden)
	claimSome(t, l.s, l.worker, 6)
}

// Once no older program is installed, none can be, until the step is taken back.
func TestOlderProgramsAreRefusedOnceTheyAreGone(t *testing.T) {
	l := newLimits(t)
	l.exec("insert into tusk.program (name, version) values ('tusk_f0', 12)")
	oldest := "select oldest_program from tusk.server"
	l.maintain()
	if n := l.number(oldest); n >= 13 {
		t.Errorf("version %d is required while an older program is installed", n)
	}
	l.exec("update tusk.program set seen_at = seen_at - interval '8 days' where name = 'tusk_f0'")
	l.maintain()
	if n := l.number(oldest); n != 13 {
		t.Errorf("version %d is required, want 13", n)
	}
	if _, err := l.s.Migrate(t.Context(), 12); err != nil {
		t.Fatal(err)
	}
	if n := l.number(oldest); n >= 13 {
		t.Errorf("version %d is required after the step was taken back", n)
	}
}
