package mysql_test

import (
	"testing"

	"github.com/tuskqueue/tusk/store"
)

// TestTurnsAreGivenToThoseThatStillWait takes a task away in a transaction that is open while
// the task is to be given its turn, with another one: the other one gets its turn at once.
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
