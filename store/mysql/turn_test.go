package mysql_test

import (
	"slices"
	"testing"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/mysql"
)

// TestTurnsAreGivenToThoseThatStillWait takes a task away in an open transaction while the task and another one are to
// get their turns. The other one gets its turn at once.
func TestTurnsAreGivenToThoseThatStillWait(t *testing.T) {
	s := fresh(t)
	term := lead(t, s)
	tasks := newTasks(2, "q")
	tasks[0].Turn, tasks[1].Turn = true, true
	enqueue(t, s, tasks...)
	tx, err := s.DB().Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	for _, text := range []string{"delete from tusk_line where id = ?",
		"update tusk_task set state = 7, turn = 0, lap = lap + 1 where id = ?"} {
		if _, err := tx.Exec(text, tasks[0].ID[:]); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := s.Grant(t.Context(), term, []store.ID{tasks[0].ID, tasks[1].ID}); err != nil || n != 1 {
		t.Fatalf("%d were given their turn: %v", n, err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if got := claim(t, s, startWorker(t, s), 2); len(got) != 1 || got[0].ID != tasks[1].ID {
		t.Errorf("claimed %v", got)
	}
}

// inTurns stores ten tasks that wait for their turn, five for each of two tenants, and gives three tasks of the first
// tenant their turn.
func inTurns(t *testing.T, s *mysql.Store) (term int64, tasks []store.NewTask) {
	t.Helper()
	term, tasks = lead(t, s), newTasks(10, "q")
	for i := range tasks {
		tasks[i].Turn, tasks[i].Tenant, tasks[i].Partition = true, "a", "p"
		if i >= 5 {
			tasks[i].Tenant, tasks[i].Partition = "b", ""
		}
	}
	enqueue(t, s, tasks...)
	if n, err := s.Grant(t.Context(), term, []store.ID{tasks[0].ID, tasks[1].ID, tasks[2].ID}); err != nil || n != 3 {
		t.Fatalf("%d were given their turn: %v", n, err)
	}
	return term, tasks
}

// wantTurns fails unless held tasks of a have a turn, and the other tasks of both tenants wait.
func wantTurns(t *testing.T, s *mysql.Store, term int64, held int, tasks []store.NewTask) {
	t.Helper()
	turns, err := s.Turns(t.Context(), term, 10, 10)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range turns {
		want, holds := []store.ID{tasks[3].ID, tasks[4].ID}, held
		if g.Tenant == "b" {
			want, holds = nil, 0
			for _, task := range tasks[5:] {
				want = append(want, task.ID)
			}
		}
		if g.Held != int64(holds) || !slices.Equal(g.Waiting, want) {
			t.Errorf("%s: %d have a turn, want %d; %v wait, want %v", g.Tenant, g.Held, holds, g.Waiting, want)
		}
	}
	if len(turns) != 2 {
		t.Errorf("%d groups", len(turns))
	}
}

// TestTurnsAreSummedUp ends tasks one by one. Everybody sees which tasks have a turn, and the leader leaves no rows of
// tasks that have ended.
func TestTurnsAreSummedUp(t *testing.T) {
	s := fresh(t)
	term, tasks := inTurns(t, s)
	wantTurns(t, s, term, 3, tasks)
	for left := 2; left >= 0; left-- {
		got := claim(t, s, startWorker(t, s), 1)
		finish(t, s, got)
		wantTurns(t, s, 0, left, tasks)
		if left == 1 {
			wantTurns(t, s, term, left, tasks)
		}
	}
	if n := number(t, s, "select count(*) from tusk_held"); n == 0 {
		t.Error("who does not lead has summed up")
	}
	wantTurns(t, s, term, 0, tasks)
	if n := number(t, s, "select count(*) from tusk_held"); n != 0 {
		t.Errorf("%d rows are left", n)
	}
}

// The leader sums up while it sees that a turn was given back, but not yet that it was given.
func TestATurnThatIsGivenBackBeforeItIsSeenIsNotHeldForEver(t *testing.T) {
	s := fresh(t)
	term, tasks := inTurns(t, s)
	exec(t, s, "create table hidden as select * from tusk_held")
	exec(t, s, "delete from tusk_held")
	finish(t, s, claim(t, s, startWorker(t, s), 1))
	ids := []store.ID{tasks[3].ID, tasks[4].ID}
	if n, err := s.Grant(t.Context(), term, ids); err != nil || n != 2 {
		t.Fatalf("%d were given their turn: %v", n, err)
	}
	finish(t, s, claim(t, s, startWorker(t, s), 4)) // nobody sees yet that two of them had a turn
	if _, err := s.Turns(t.Context(), term, 10, 10); err != nil {
		t.Fatal(err)
	}
	if n := number(t, s, "select count(*) from tusk_held"); n != 1 {
		t.Fatalf("%d rows: nothing was summed up", n)
	}
	exec(t, s, "insert into tusk_held (back, refs) select back, refs from hidden")
	turns, err := s.Turns(t.Context(), term, 10, 10)
	if err != nil || slices.ContainsFunc(turns, func(of store.Turns) bool { return of.Held != 0 }) {
		t.Errorf("somebody has a turn for ever: %+v, %v", turns, err)
	}
	if n := number(t, s, "select count(*) from tusk_held"); n != 0 {
		t.Errorf("%d rows are left", n)
	}
}

// TestTurnsOutliveMigrations takes the schema back to before lines were tables of their own, and forward again.
func TestTurnsOutliveMigrations(t *testing.T) {
	s := fresh(t)
	term, tasks := inTurns(t, s)
	for _, version := range []int64{1, -1} {
		if _, err := s.Migrate(t.Context(), version); err != nil {
			t.Fatal(err)
		}
	}
	wantTurns(t, s, term, 3, tasks)
	pending, err := s.List(t.Context(), store.Filter{States: []store.State{store.Pending}})
	if err != nil || len(pending) != 7 {
		t.Fatalf("%d are pending: %v", len(pending), err)
	}
	if n, err := s.Grant(t.Context(), term, []store.ID{tasks[3].ID, tasks[9].ID}); err != nil || n != 2 {
		t.Fatalf("%d were given their turn: %v", n, err)
	}
	got := claim(t, s, startWorker(t, s), 10)
	finish(t, s, got)
	if len(got) != 5 {
		t.Errorf("%d were claimed", len(got))
	}
}

func TestAnEmptyLineIsNoLongLine(t *testing.T) {
	s := fresh(t)
	term := lead(t, s)
	task := newTasks(1, "q")
	task[0].Turn = true
	enqueue(t, s, task...)
	for _, want := range []int{1, 0} {
		if turns, err := s.Turns(t.Context(), term, 10, 10); err != nil || len(turns) != want {
			t.Fatal(turns, err)
		}
		if s.ManyWait() {
			t.Errorf("many tasks are said to wait in %d groups", want)
		}
		if _, err := s.Edit(t.Context(), store.Edit{IDs: []store.ID{task[0].ID},
			Change: store.Change{Op: store.Cancel}}); err != nil {
			t.Fatal(err)
		}
	}
}
