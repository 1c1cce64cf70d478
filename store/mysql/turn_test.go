package mysql_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// TestTurnsAreGivenToThoseThatStillWait takes a task away while it is being given its
// turn, with another one.
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
	for _, text := range []string{"delete from tusk_turn where id = ?", "update tusk_task set state = 7, turn = 0, lap = lap + 1 where id = ?"} {
		if _, err := tx.Exec(text, tasks[0].ID[:]); err != nil {
			t.Fatal(err)
		}
	}
	granted := make(chan error, 1)
	go func() {
		n, err := s.Grant(t.Context(), term, []store.ID{tasks[0].ID, tasks[1].ID})
		if err == nil && n != 1 {
			err = fmt.Errorf("%d were given their turn", n)
		}
		granted <- err
	}()
	for number(t, s, "select count(*) from information_schema.innodb_trx where trx_state = 'LOCK WAIT'") == 0 {
		time.Sleep(200 * time.Millisecond) // the server renews that table only when nobody has read it for 100 ms
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := <-granted; err != nil {
		t.Fatal(err)
	}
	if got := claim(t, s, startWorker(t, s), 2); len(got) != 1 || got[0].ID != tasks[1].ID {
		t.Errorf("claimed %v", got)
	}
}
