package postgres_test

import (
	"testing"

	"github.com/tuskqueue/tusk/store"
)

// Earlier releases left a task pending for ever that waits on failure for a task that was deleted.
func TestAnUpgradeFreesTasksThatWaitForADeletedOne(t *testing.T) {
	s, pool := fresh(t)
	ctx := t.Context()
	parents := newTasks(2, "q")
	if _, err := s.Enqueue(ctx, parents); err != nil {
		t.Fatal(err)
	}
	gone, waits := child(parents[0].ID), child(parents[1].ID)
	gone.Needs[0].OnFailure, waits.Needs[0].OnFailure = store.WaitOnFailure, store.WaitOnFailure
	if _, err := s.Enqueue(ctx, []store.NewTask{gone, waits}); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(ctx, "with d as (delete from tusk.doubt) delete from tusk.log where id = $1",
		[16]byte(parents[0].ID)); err != nil {
		t.Fatal(err)
	}
	for _, version := range []int64{11, -1} {
		if _, err := s.Migrate(ctx, version); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Admit(ctx, lead(t, s), 1000); err != nil {
		t.Fatal(err)
	}
	if a, b := stateOf(t, s, gone.ID), stateOf(t, s, waits.ID); a != store.Cancelled || b != store.Pending {
		t.Errorf("the task whose parent is gone is %v, the other one %v", a, b)
	}
	if n := number(t, pool, "select count(*) from tusk.doubt"); n != 0 {
		t.Errorf("%d doubts are left", n)
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
