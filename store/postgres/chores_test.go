package postgres_test

import (
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// TestTheLookForChoresRenewsTheTerm checks what the conformance suite only asks of engines that announce it.
func TestTheLookForChoresRenewsTheTerm(t *testing.T) {
	s, pool := fresh(t)
	c := store.Candidate{ID: store.ID{1}, TTL: time.Minute}
	l, err := s.Lead(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	c.Term = l.Term
	expires := func() (at time.Time) {
		t.Helper()
		if err := pool.QueryRow(t.Context(), "select expires_at from tusk.leader").Scan(&at); err != nil {
			t.Fatal(err)
		}
		return at
	}
	before := expires()
	told, err := s.Oversee(t.Context(), c)
	if err != nil || told.Renewed.IsZero() || !expires().After(before) {
		t.Errorf("renewed at %v, %v: the term ends at %v, before at %v", told.Renewed, err, expires(), before)
	}
	c.TTL, before = 0, expires()
	if told, err := s.Oversee(t.Context(), c); err != nil || !told.Renewed.IsZero() || !expires().Equal(before) {
		t.Errorf("a look only renewed the term: %v, %v", told.Renewed, err)
	}
}

// An admission does not depend on the database's isolation level. Where tasks are decided on, it begins its own.
func TestAnAdmissionWorksAtEachIsolationLevel(t *testing.T) {
	for _, level := range []string{"repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			s, pool := fresh(t)
			ctx := t.Context()
			term := lead(t, s)
			tasks := newTasks(4, "q")
			tasks[0].Delay = time.Millisecond
			tasks[1].Delay, tasks[1].Turn = time.Millisecond, true
			tasks[2].Delay = time.Hour
			tasks[3].Needs = []store.Need{{Task: tasks[2].ID}}
			if _, err := s.Enqueue(ctx, tasks); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Edit(ctx, store.Edit{IDs: []store.ID{tasks[2].ID},
				Change: store.Change{Op: store.Cancel}}); err != nil {
				t.Fatal(err)
			}
			if _, err := pool.Exec(ctx, "do $$ begin execute 'alter database ' || current_database() || "+
				"' set default_transaction_isolation = ''"+level+"'''; end $$"); err != nil {
				t.Fatal(err)
			}
			pool.Reset()
			var done store.Admitted
			eventually(t, "the due task is admitted, and the doomed one cancelled", func() bool {
				more, err := s.Admit(ctx, term, 10)
				if err != nil {
					t.Fatal(err)
				}
				done.Count, done.Cancelled = done.Count+more.Count, done.Cancelled+more.Cancelled
				return done.Count >= 1 && done.Cancelled >= 1
			})
			for i, want := range []store.State{store.Available, store.Pending, store.Cancelled, store.Cancelled} {
				if state := stateOf(t, s, tasks[i].ID); state != want {
					t.Errorf("task %d is %v, want %v", i, state, want)
				}
			}
		})
	}
}
