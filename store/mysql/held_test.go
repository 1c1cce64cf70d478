package mysql_test

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/mysql"
	"github.com/tuskqueue/tusk/store/mysql/mysqltest"
)

// A transaction holds one outcome of a batch, and another one cannot be stored. The third is accepted.
func TestOutcomesThatWereAcceptedAreNotLostWithOthers(t *testing.T) {
	s := fresh(t)
	enqueue(t, s, newTasks(4, "q")...)
	outcomes := completed(claim(t, s, startWorker(t, s), 4))
	held, bad := &outcomes[2], &outcomes[3]
	held.Then, bad.Then = newTasks(1, "q"), newTasks(1, "q")
	bad.Then[0].Kind = strings.Repeat("x", 300)
	tx, _ := begin(t, s)
	if _, err := tx.Exec("select 1 from tusk_task where id = ? for update", held.Task.ID[:]); err != nil {
		t.Fatal(err)
	}
	said := new(store.HeldError)
	lost, err := s.Finish(t.Context(), outcomes)
	if len(lost) > 0 || !errors.Is(err, store.ErrUnstorable) || !errors.As(err, &said) ||
		!slices.Equal(said.Tasks, []store.ID{held.Task.ID, bad.Task.ID}) {
		t.Fatalf("lost %v, %v; want that two are held, and one cannot be stored", lost, err)
	}
	if n := number(t, s, "select count(*) from tusk_task where state = 6"); n != 2 {
		t.Errorf("%d tasks are completed, want 2", n)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if lost, err := s.Finish(t.Context(), []store.Outcome{*bad}); !errors.Is(err, store.ErrUnstorable) ||
		!errors.Is(err, store.ErrNotCommitted) || errors.As(err, &said) || len(lost) > 0 {
		t.Errorf("alone: lost %v, %v", lost, err)
	}
	bad.Then = nil
	if lost, err := s.Finish(t.Context(), []store.Outcome{*held, *bad}); err != nil || len(lost) > 0 {
		t.Error(lost, err)
	}
}

// More tasks than a transaction admits at once are due and held, before one that is not.
func TestHeldTasksDoNotKeepOthersFromBeingAdmitted(t *testing.T) {
	s := fresh(t)
	term := lead(t, s)
	tasks := newTasks(2105, "q")
	for i := range tasks {
		tasks[i].Delay = time.Hour
	}
	enqueue(t, s, tasks...)
	exec(t, s, "update tusk_task set run_at = 1")
	exec(t, s, "update tusk_waiting set run_at = 1")
	tx, _ := begin(t, s)
	if _, err := tx.Exec("select 1 from tusk_task force index (primary) order by place, n limit ? for update",
		len(tasks)-1); err != nil {
		t.Fatal(err)
	}
	if done, err := s.Admit(t.Context(), term, 5000); err != nil || done.Count != 1 || done.Next != 0 {
		t.Fatalf("%+v, %v; want that one is admitted, and others are due", done, err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if done, err := s.Admit(t.Context(), term, 5000); err != nil || done.Count != len(tasks)-1 || done.Next != -1 {
		t.Errorf("then: %+v, %v", done, err)
	}
}

// The names of all tasks that have a turn are larger than a packet.
func TestManyTurnsAreSummedUp(t *testing.T) {
	const many = 6000
	dsn := mysqltest.Start(t, "--max-allowed-packet=1M").Database(t)
	migrate(t, dsn)
	s := open(t, dsn)
	term := lead(t, s)
	given := func(from int) (refs []byte) {
		for n := from; n < from+1000; n++ {
			refs = binary.BigEndian.AppendUint64(refs, uint64(n))
			refs = binary.BigEndian.AppendUint16(refs, 0)
			for _, name := range []string{"q", "tenant", strings.Repeat("p", 200)} {
				refs = append(append(refs, byte(len(name))), name...)
			}
		}
		return refs
	}
	back := func(from int) (refs []byte) {
		for n := from; n < from+1000; n++ {
			refs = binary.BigEndian.AppendUint64(refs, uint64(n))
			refs = append(refs, make([]byte, 8)...)
		}
		return refs
	}
	for n := 0; n < 2*many; n += 1000 { // those of the second half are over
		exec(t, s, "insert into tusk_held (back, refs) values (0, ?)", given(n))
		if n >= many {
			exec(t, s, "insert into tusk_held (back, refs) values (1, ?)", back(n))
		}
	}
	exec(t, s, "insert into tusk_held (back, refs) values (1, ?)", back(3*many)) // not visible as granted yet
	for range 2 {
		turns, err := s.Turns(t.Context(), term, 10, 10)
		if err != nil || len(turns) != 1 || turns[0].Held != many {
			t.Fatalf("%+v, %v", turns, err)
		}
	}
	if n := number(t, s, "select sum(length(refs)) from tusk_held where not back"); n != many*220 {
		t.Errorf("%d bytes are left", n)
	}
}

// The caller of an enqueue that waits for a key, or for a task that it needs, has given up. The server must not wait
// on, with all that it has locked.
func TestTheServerDoesNotWaitForALockLongerThanItsCaller(t *testing.T) {
	dsn := mysqltest.Database(t)
	migrate(t, dsn)
	for name, s := range map[string]*mysql.Store{"own pool": open(t, dsn), "the user's pool": newOn(t, dsn, nil)} {
		s.DB().SetMaxOpenConns(3)
		keyed := newTasks(1, "q")
		keyed[0].Key = name
		enqueue(t, s, keyed...)
		usual := number(t, s, "select @@session.innodb_lock_wait_timeout")
		tx, _ := begin(t, s)
		if _, err := tx.Exec("select 1 from tusk_key for update"); err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec("select 1 from tusk_task where id = ? for update", keyed[0].ID[:]); err != nil {
			t.Fatal(err)
		}
		again, child := newTasks(1, "q"), newTasks(1, "q")
		again[0].Key, child[0].Needs = name, []store.Need{{Task: keyed[0].ID}}
		for _, tasks := range [][]store.NewTask{again, child} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, err := s.Enqueue(ctx, tasks); !errors.Is(err, store.ErrNotCommitted) {
				t.Errorf("%s: %v", name, err)
			}
			cancel()
		}
		waits := "select count(*) from information_schema.innodb_trx where trx_state = 'LOCK WAIT'"
		for until := time.Now().Add(6 * time.Second); number(t, s, waits) > 0; {
			if time.Now().After(until) {
				t.Fatalf("%s: the server still waits", name)
			}
			time.Sleep(200 * time.Millisecond) // the server updates that table only if nobody has read it for 100 ms
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		again[0].ID = newTasks(1, "q")[0].ID
		if results, err := s.Enqueue(ctx, again); err != nil || results[0].Result != store.Skipped {
			t.Errorf("%s: %+v, %v", name, results, err)
		}
		cancel()
		s.DB().SetMaxOpenConns(1)
		if n := number(t, s, "select @@session.innodb_lock_wait_timeout"); n != usual {
			t.Errorf("%s: sessions wait for %d s, want %d", name, n, usual)
		}
	}
}

// The server rolls back a transaction whose caller has a deadline. Its connection is as good as before.
func TestADeadlineDoesNotCostConnections(t *testing.T) {
	dsn := mysqltest.Database(t)
	migrate(t, dsn)
	own := open(t, dsn)
	exec(t, own, `create trigger injected before insert on tusk_key for each row
		signal sqlstate '40001' set mysql_errno = 1213, message_text = 'injected'`)
	for name, s := range map[string]*mysql.Store{"own pool": own, "the user's pool": newOn(t, dsn, nil)} {
		s.DB().SetMaxOpenConns(1)
		usual := number(t, s, "select @@session.innodb_lock_wait_timeout")
		connection := number(t, s, "select connection_id()")
		keyed := newTasks(1, "q")
		keyed[0].Key = "k"
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
		if _, err := s.Enqueue(ctx, keyed); !errors.Is(err, store.ErrNotCommitted) || ctx.Err() != nil {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
		if number(t, s, "select connection_id()") != connection {
			t.Errorf("%s: the connection is given up", name)
		}
		if n := number(t, s, "select @@session.innodb_lock_wait_timeout"); n != usual {
			t.Errorf("%s: sessions wait for %d s, want %d", name, n, usual)
		}
	}
}

// A day is added between two reads of one snapshot.
func TestAViewOutlivesAChangeOfATable(t *testing.T) {
	s := fresh(t)
	enqueue(t, s, newTasks(3, "q")...)
	changes := 0
	n, err := s.View(t.Context(), func() {
		if changes++; changes == 1 {
			exec(t, s, "alter table tusk_task rebuild partition pmax")
		}
	})
	if err != nil || n != 3 || changes != 2 && mysql.IsMariaDB(t, s) {
		t.Errorf("%d tasks after %d tries, %v", n, changes, err)
	}
}
