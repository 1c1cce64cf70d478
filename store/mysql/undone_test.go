package mysql_test

import (
	"testing"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/mysql/mysqltest"
)

// A failover to a replica that lacks a claim undoes it. Another worker claims the task, and one end is accepted.
func TestOneEndIsAcceptedAlthoughAClaimWasUndone(t *testing.T) {
	dsn := mysqltest.Database(t)
	migrate(t, dsn)
	s, other := open(t, dsn), open(t, dsn)
	workers := []store.ID{startWorker(t, s), startWorker(t, other)}
	exec(t, s, "create table before_claim as select * from tusk_ready limit 0")
	for _, state := range []store.State{store.Completed, store.Retryable} {
		enqueue(t, s, newTasks(1, "q")...)
		exec(t, s, "insert into before_claim select * from tusk_ready")
		first := completed(claim(t, s, workers[0], 1))
		exec(t, s, "delete from tusk_lease")
		exec(t, s, "insert into tusk_ready select * from before_claim")
		exec(t, s, "delete from before_claim")
		second := completed(claim(t, other, workers[1], 1))
		first[0].State, second[0].State = state, state
		if lost, err := s.Finish(t.Context(), first); err != nil || len(lost) > 0 {
			t.Errorf("%v: the first end: lost %v, %v", state, lost, err)
		}
		if lost, err := other.Finish(t.Context(), second); err != nil || len(lost) != 1 {
			t.Errorf("%v: the second end: lost %v, %v", state, lost, err)
		}
	}
}
