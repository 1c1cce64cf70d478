package mysql_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/mysql"
	"github.com/tuskqueue/tusk/store/mysql/mysqltest"
)

// inject makes inserts into tables fail now and then, as they do when the server rolls a transaction back.
func inject(t *testing.T, text func(table string) string) {
	t.Helper()
	s := fresh(t)
	tables := []string{"tusk_task", "tusk_ready", "tusk_lease", "tusk_delta"}
	for _, table := range tables {
		exec(t, s, text(table))
	}
	run(t, s, 1000)
	for _, table := range tables {
		exec(t, s, "drop trigger injected_"+table)
	}
	m, err := s.Measure(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d transactions begun anew", m.Conflicts)
}

func TestDeadlocksAreSurvived(t *testing.T) {
	inject(t, func(table string) string {
		return fmt.Sprintf(`create trigger injected_%s before insert on %s for each row
			if rand() < 0.05 then signal sqlstate '40001' set mysql_errno = 1213, message_text = 'injected'; end if`,
			table, table)
	})
}

func TestLockTimeoutsAreSurvived(t *testing.T) {
	inject(t, func(table string) string {
		return fmt.Sprintf(`create trigger injected_%s before insert on %s for each row
			if rand() < 0.02 then signal sqlstate 'HY000' set mysql_errno = 1205, message_text = 'injected'; end if`,
			table, table)
	})
}

// awaitLockWait waits until a transaction waits for a lock.
func awaitLockWait(t *testing.T, s *mysql.Store) {
	t.Helper()
	waits := "select count(*) from information_schema.innodb_trx where trx_state = 'LOCK WAIT'"
	for until := time.Now().Add(20 * time.Second); number(t, s, waits) == 0; {
		if time.Now().After(until) {
			t.Fatal("nobody waits for a lock")
		}
		time.Sleep(200 * time.Millisecond) // the server updates that table only if nobody has read it for 100 ms
	}
}

func TestARealDeadlockIsSurvived(t *testing.T) {
	s := fresh(t)
	ctx := t.Context()
	tasks := newTasks(2, "q")
	for i := range tasks {
		tasks[i].Key = fmt.Sprint("k", i)
	}
	enqueue(t, s, tasks...)
	tx, err := s.DB().Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.Exec(
		"select 1 from tusk_key where queue = 'q' and tenant = '' and tkey = 'k1' for update"); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { // locks k0, then waits for k1
		again := newTasks(2, "q")
		again[0].Key, again[1].Key = "k0", "k1"
		_, err := s.Enqueue(ctx, again)
		ended <- err
	}()
	awaitLockWait(t, s)
	_, err = tx.Exec("select 1 from tusk_key where queue = 'q' and tenant = '' and tkey = 'k0' for update")
	if err == nil { // the other one was the victim
		err = tx.Rollback()
	}
	if other := <-ended; other != nil {
		t.Error(other, err)
	}
}

func TestNothingIsLostWhenConnectionsAreKilled(t *testing.T) {
	dsn := mysqltest.Database(t)
	migrate(t, dsn)
	s, killer := open(t, dsn), open(t, dsn)
	ctx, cancel := context.WithCancel(context.Background())
	var g sync.WaitGroup
	var killed atomic.Int64
	g.Go(func() {
		for ctx.Err() == nil {
			ids := connections(t, killer)
			for i, id := range ids {
				if i%2 == 0 {
					if _, err := killer.DB().Exec(fmt.Sprintf("kill connection %d", id)); err == nil {
						killed.Add(1)
					}
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(30 * time.Millisecond):
			}
		}
	})
	run(t, s, 4000)
	cancel()
	g.Wait()
	if killed.Load() == 0 {
		t.Error("nothing was killed")
	}
	t.Logf("%d connections killed", killed.Load())
}

// connections returns the connections to a database, except those that ask for them.
func connections(t *testing.T, s *mysql.Store) (ids []int64) {
	t.Helper()
	rows, err := s.DB().Query(`select id from information_schema.processlist
		where db = database() and id <> connection_id() and coalesce(info, '') not like '%processlist%'`)
	if err != nil {
		return nil // it was killed itself
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			t.Error(err)
		}
		ids = append(ids, id)
	}
	return ids
}

func TestNothingIsLostWhenTheServerIsKilled(t *testing.T) {
	server := mysqltest.Start(t)
	dsn := server.Database(t)
	migrate(t, dsn)
	s := open(t, dsn)
	ctx, cancel := context.WithCancel(context.Background())
	var g sync.WaitGroup
	g.Go(func() {
		for range 2 {
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Second):
			}
			server.Kill()
			if err := server.Run(); err != nil {
				t.Error(err)
			}
		}
	})
	run(t, s, 4000)
	cancel()
	g.Wait()
}

// TestALeaseOutlivesAFinishThatWasTakenBack holds a lease while the finish of its last task fails and other leases end.
// Nobody may forget whose task it is.
func TestALeaseOutlivesAFinishThatWasTakenBack(t *testing.T) {
	s := fresh(t)
	ctx := t.Context()
	w := startWorker(t, s)
	enqueue(t, s, newTasks(40, "q")...)
	held := claim(t, s, w, 1)
	exec(t, s,
		"create trigger broken before insert on tusk_delta for each row signal sqlstate '45000' set message_text = 'broken'")
	if _, err := s.Finish(ctx, completed(held)); !errors.Is(err, store.ErrNotCommitted) {
		t.Fatal(err)
	}
	exec(t, s, "drop trigger broken")
	for range 39 { // finished leases are deleted together
		finish(t, s, claim(t, s, w, 1))
	}
	if n := number(t, s, "select count(*) from tusk_lease where token = ?", held[0].Lease[:]); n != 1 {
		t.Fatalf("%d leases", n)
	}
	if n := number(t, s, "select count(*) from tusk_lease"); n > 17 {
		t.Errorf("%d leases are left", n)
	}
	if _, err := s.Extend(ctx, store.Beat{Worker: store.Worker{ID: w}}); err != nil {
		t.Fatal(err)
	}
	term := lead(t, s)
	got, err := s.Rescue(ctx, term, 10)
	if err != nil || len(got) != 1 || got[0].ID != held[0].ID {
		t.Fatal(got, err)
	}
	if n := number(t, s, "select count(*) from tusk_lease"); n != 1 {
		t.Errorf("%d leases are left", n)
	}
}

// TestAClaimThatFailsGivesNothing makes a claim fail after its tasks have been read. If the tasks counted as claimed,
// two claims would have them.
func TestAClaimThatFailsGivesNothing(t *testing.T) {
	s := fresh(t)
	ctx := t.Context()
	c := store.ClaimRequest{Worker: startWorker(t, s), Queues: []string{"q"}, Limit: 3, Token: store.NewToken()}
	enqueue(t, s, newTasks(3, "q")...)
	exec(t, s,
		"create trigger injected before insert on tusk_delta for each row signal sqlstate '45000' set message_text "+
			"= 'injected'")
	if tasks, err := s.Claim(ctx, c); err == nil || len(tasks) > 0 {
		t.Errorf("%d tasks, %v", len(tasks), err)
	}
	again := c
	again.Again = true
	if tasks, err := s.Claim(ctx, again); err != nil || len(tasks) > 0 {
		t.Errorf("again: %d tasks, %v", len(tasks), err)
	}
	exec(t, s, "drop trigger injected")
	if tasks, err := s.Claim(ctx, c); err != nil || len(tasks) != 3 {
		t.Errorf("%d tasks, %v", len(tasks), err)
	}
}

// TestATaskThatAClaimReadTooEarlyIsReadAgain sets a task back to its state before the last transaction, until a claim
// has read it. InnoDB may show it so, for a moment, to readers without a lock.
func TestATaskThatAClaimReadTooEarlyIsReadAgain(t *testing.T) {
	s := fresh(t)
	ctx := t.Context()
	c := store.ClaimRequest{Worker: startWorker(t, s), Queues: []string{"q"}, Limit: 3, Token: store.NewToken()}
	enqueue(t, s, newTasks(2, "q")...)
	exec(t, s, `update tusk_task set lap = lap - 1, args = '"before"' where n = 1`)
	exec(t, s, `create trigger later before insert on tusk_delta for each row
		update tusk_task set lap = 0, args = '"since"' where lap < 0`)
	tasks, err := s.Claim(ctx, c)
	exec(t, s, "drop trigger later")
	if err != nil || len(tasks) != 2 || string(tasks[1].Args) != `"since"` {
		t.Fatalf("claimed %v, %v", tasks, err)
	}
	finish(t, s, tasks)
	if n := number(t, s, "select count(*) from tusk_task where state = 6"); n != 2 {
		t.Errorf("%d of 2 tasks are completed", n)
	}
}

// TestATaskThatAClaimDoesNotSeeYetIsReadAgain hides the row of a task until a claim has looked for it.
func TestATaskThatAClaimDoesNotSeeYetIsReadAgain(t *testing.T) {
	s := fresh(t)
	ctx := t.Context()
	c := store.ClaimRequest{Worker: startWorker(t, s), Queues: []string{"q"}, Limit: 3, Token: store.NewToken()}
	added := newTasks(3, "q")
	enqueue(t, s, added...)
	exec(t, s, "create table hidden as select * from tusk_task where n = 0")
	exec(t, s, "delete from tusk_task where n = 0")
	exec(t, s,
		"create trigger later before insert on tusk_delta for each row insert ignore into tusk_task select * from hidden")
	tasks, err := s.Claim(ctx, c)
	exec(t, s, "drop trigger later")
	if err != nil || len(tasks) != 3 || tasks[0].ID != added[0].ID {
		t.Fatalf("claimed %v, %v", tasks, err)
	}
	finish(t, s, tasks)
	if n := number(t, s, "select count(*) from tusk_task where state = 6"); n != 3 {
		t.Errorf("%d of 3 tasks are completed", n)
	}
}

// A claim that cannot see everything that it leased takes what it sees. The rest is a stray, and is not lost with the
// lease when the other tasks have ended.
func TestATaskThatAClaimNeverSeesIsNotLost(t *testing.T) {
	s := fresh(t)
	ctx := t.Context()
	c := store.ClaimRequest{Worker: startWorker(t, s), Queues: []string{"q"}, Limit: 3, Token: store.NewToken()}
	enqueue(t, s, newTasks(3, "q")...)
	exec(t, s, "create table hidden as select * from tusk_task where n = 0")
	exec(t, s, "delete from tusk_task where n = 0")
	first := c.Token
	tasks, err := s.Claim(ctx, c)
	if err != nil || len(tasks) != 2 {
		t.Fatalf("claimed %v, %v", tasks, err)
	}
	exec(t, s, "insert into tusk_task select * from hidden")
	finish(t, s, tasks)
	for range 20 { // enough for finished leases to be deleted together
		enqueue(t, s, newTasks(1, "q")...)
		c.Token = store.NewToken()
		if tasks, err = s.Claim(ctx, c); err != nil || len(tasks) != 1 {
			t.Fatalf("claimed %v, %v", tasks, err)
		}
		finish(t, s, tasks)
	}
	if n := number(t, s, "select count(*) from tusk_lease where token = ?", first[:]); n != 1 {
		t.Errorf("%d leases name the task", n)
	}
}

// TestWhoeverTellsWhatIsStoredWrites repeats a claim and an enqueue. InnoDB shows others what it has not synced yet,
// and only a commit that writes waits for the sync.
func TestWhoeverTellsWhatIsStoredWrites(t *testing.T) {
	s := fresh(t)
	ctx := t.Context()
	c := store.ClaimRequest{Worker: startWorker(t, s), Queues: []string{"q"}, Limit: 1, Token: store.NewToken()}
	tasks := newTasks(2, "q")
	tasks[0].Key = "k"
	enqueue(t, s, tasks[0])
	first, err := s.Claim(ctx, c)
	if err != nil || len(first) != 1 {
		t.Fatal(first, err)
	}
	writes := func(what string, repeat func() error) {
		t.Helper()
		before := number(t, s, "select count(*) from tusk_delta")
		if err := repeat(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if n := number(t, s, "select count(*) from tusk_delta"); n != before+1 {
			t.Errorf("%s: %d rows were written", what, n-before)
		}
	}
	writes("a claim", func() error {
		c.Again = true
		again, err := s.Claim(ctx, c)
		if len(again) != 1 || again[0].ID != first[0].ID {
			t.Errorf("got %v", again)
		}
		return err
	})
	writes("an enqueue", func() error {
		tasks[1].Key = "k"
		results, err := s.Enqueue(ctx, tasks[1:])
		if len(results) != 1 || results[0].Result != store.Skipped {
			t.Errorf("got %v", results)
		}
		return err
	})
	if _, err := s.Stats(ctx, store.StatsFilter{}); err != nil { // this reads them
		t.Error(err)
	}
}

func TestALeaseThatNobodyCouldDeleteIsSweptUp(t *testing.T) {
	dsn := mysqltest.Database(t)
	migrate(t, dsn)
	s, other := open(t, dsn), open(t, dsn)
	w := startWorker(t, s)
	enqueue(t, s, newTasks(2, "q")...)
	tasks := claim(t, s, w, 2)
	finish(t, other, tasks[:1]) // it knows no lease of this process
	exec(t, s, "update tusk_lease set claimed_at = claimed_at - 3600000000")
	term := lead(t, s)
	sweep := func(want int64) {
		t.Helper()
		if err := s.Maintain(t.Context(), term); err != nil {
			t.Fatal(err)
		}
		if n := number(t, s, "select count(*) from tusk_lease"); n != want {
			t.Errorf("%d leases, want %d", n, want)
		}
	}
	sweep(1)
	finish(t, other, tasks[1:])
	sweep(0)
}

func TestAWorkersBeatDoesNotWaitForALongTransaction(t *testing.T) {
	s := fresh(t)
	ctx := t.Context()
	w := startWorker(t, s)
	enqueue(t, s, newTasks(1, "q")...)
	tasks := claim(t, s, w, 1)
	_, u := begin(t, s)
	if lost, err := u.Finish(ctx, completed(tasks)); err != nil || len(lost) > 0 {
		t.Fatal(lost, err)
	}
	soon, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	note := store.Note{ID: tasks[0].ID, Lease: tasks[0].Lease, Progress: &store.Progress{Percent: 50}}
	if _, err := s.Extend(soon, store.Beat{Worker: store.Worker{ID: w}, TTL: time.Hour,
		Notes: []store.Note{note}}); err != nil {
		t.Error(err)
	}
	if got, err := s.Claim(soon, store.ClaimRequest{Worker: w, Queues: []string{"q"}, Limit: 1,
		Token: store.NewToken()}); err != nil || len(got) > 0 {
		t.Error(got, err)
	}
}

// An open transaction holds one of several tasks that were enqueued, claimed and completed together. Only that task is
// held up.
func TestOneHeldTaskHoldsUpNoneBesideIt(t *testing.T) {
	s := fresh(t)
	ctx := t.Context()
	w := startWorker(t, s)
	enqueue(t, s, newTasks(40, "q")...)
	tasks := claim(t, s, w, 40)
	tx, u := begin(t, s)
	child := newTasks(1, "children")
	child[0].Needs = []store.Need{{Task: tasks[7].ID}}
	if _, err := u.Enqueue(ctx, child); err != nil {
		t.Fatal(err)
	}
	soon, cancel := context.WithTimeout(ctx, 8*time.Second)
	defer cancel()
	held := new(store.HeldError)
	lost, err := s.Finish(soon, completed(tasks))
	if len(lost) > 0 || !errors.As(err, &held) || len(held.Tasks) != 1 || held.Tasks[0] != tasks[7].ID {
		t.Fatalf("lost %v, error %v: want one task to be held", lost, err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if lost, err := s.Finish(ctx, completed(tasks[7:8])); err != nil || len(lost) > 0 {
		t.Fatal(lost, err)
	}
}

// A batch of adjacent completions is split at the row that a user's transaction holds, and nobody waits for that row
// meanwhile.
func TestCompletionsDoNotWaitForAHeldRow(t *testing.T) {
	s := fresh(t)
	w := startWorker(t, s)
	enqueue(t, s, newTasks(200, "q")...)
	tasks := claim(t, s, w, 200)
	tx, err := s.DB().Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.Exec("update tusk_task set needed = 1 where id = ?", tasks[70].ID[:]); err != nil {
		t.Fatal(err)
	}
	waited := func() (ms int64) {
		name := ""
		if err := s.DB().QueryRow("show global status like 'Innodb_row_lock_time'").Scan(&name, &ms); err != nil {
			t.Fatal(err)
		}
		return ms
	}
	mixed := completed(tasks[50:90])
	mixed[3].Error, mixed[3].Fingerprint, mixed[3].State = "bad", "bad", store.Discarded
	for _, outcomes := range [][]store.Outcome{mixed, completed(slices.Concat(tasks[:50], tasks[70:71], tasks[90:]))} {
		before, held := waited(), new(store.HeldError)
		lost, err := s.Finish(t.Context(), outcomes)
		if len(lost) > 0 || !errors.As(err, &held) || len(held.Tasks) != 1 || held.Tasks[0] != tasks[70].ID {
			t.Fatalf("lost %v, error %v: want one task to be held", lost, err)
		}
		if ms := waited() - before; ms > 0 {
			t.Errorf("the server counted %d ms of waiting for locks", ms)
		}
	}
}
