package mysql_test

import (
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// TestSumsAreAddedUpByOneAtATime adds up while another transaction, whose client is gone, is about to commit sums of
// the same minute.
func TestSumsAreAddedUpByOneAtATime(t *testing.T) {
	s := fresh(t)
	term := lead(t, s)
	worker := startWorker(t, s)
	enqueue(t, s, newTasks(1, "q")...)
	finish(t, s, claim(t, s, worker, 1))
	tx, err := s.DB().Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.Exec("select 1 from tusk_leader where one = 3 for update"); err != nil {
		t.Fatal(err)
	}
	var none store.Stat
	minute := time.Now().Truncate(time.Minute)
	for _, at := range []time.Time{minute.Add(-time.Minute), minute, minute.Add(time.Minute)} {
		_, err := tx.Exec(
			"insert into tusk_stat (at, queue, kind, completed, failed, discarded, cancelled, waited, ran) values (?, 'q', "+
				"'mail', 10, 0, 0, 0, ?, ?)", at.UnixMicro(), none.Waited.Encode(), none.Ran.Encode())
		if err != nil {
			t.Fatal(err)
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Maintain(t.Context(), term) }()
	awaitLockWait(t, s)
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if n := number(t, s, "select sum(completed) from tusk_stat"); n != 31 {
		t.Errorf("%d completions are summed up, want 31", n)
	}
}
