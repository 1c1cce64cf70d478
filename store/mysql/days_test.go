package mysql_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/mysql"
	"github.com/tuskqueue/tusk/store/mysql/mysqltest"
)

// at opens a handle with sessions whose time is the given instant.
func at(t *testing.T, dsn string, when time.Time) *mysql.Store {
	t.Helper()
	return open(t, dsn+fmt.Sprintf("?timestamp=%d", when.Unix()))
}

// prune prunes until nothing is left to do, and returns how many tasks it deleted.
func prune(t *testing.T, s *mysql.Store, term int64, keep store.Retention) (all int) {
	t.Helper()
	for {
		n, err := s.Prune(t.Context(), term, keep, 1000)
		if err != nil {
			t.Fatal(err)
		}
		if all += n; n < 1000 {
			return all
		}
	}
}

const daysOf = "select count(*) from information_schema.partitions where table_schema = database() and table_name = " +
	"'tusk_task'"

func TestADayGoesAsAWholeWhenNothingOfItIsKept(t *testing.T) {
	t.Run("at once", func(t *testing.T) { dayGoes(t, true) })
	t.Run("when the last is not kept any more", func(t *testing.T) { dayGoes(t, false) })
}

func dayGoes(t *testing.T, atOnce bool) {
	dsn := mysqltest.Database(t)
	past, now := at(t, dsn, time.Now().Add(-20*24*time.Hour)), open(t, dsn)
	if _, err := past.Migrate(t.Context(), -1); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	w := startWorker(t, past)
	tasks := newTasks(2500, "q")
	tasks[0].Key, tasks[0].Tags = "k", []string{"x"}
	enqueue(t, past, tasks...)
	held := claim(t, past, w, len(tasks))
	if _, err := past.Edit(ctx, store.Edit{IDs: []store.ID{held[7].ID},
		Change: store.Change{Op: store.Cancel}}); err != nil {
		t.Fatal(err) // its handler will have completed by then
	}
	outcomes := completed(held)
	outcomes[1].State, outcomes[1].Error, outcomes[1].Fingerprint, outcomes[1].Reason = store.Discarded, "no",
		"f", "gave up"
	outcomes[2].State = store.Cancelled
	if lost, err := past.Finish(ctx, outcomes); err != nil || len(lost) > 0 {
		t.Fatal(lost, err)
	}
	term := lead(t, now)
	if err := now.Maintain(ctx, term); err != nil { // makes today's partition, and sums up
		t.Fatal(err)
	}
	enqueue(t, now, newTasks(10, "q")...)
	before := number(t, now, daysOf)
	keep := store.Retention{Completed: 7 * 24 * time.Hour, Cancelled: 7 * 24 * time.Hour, Discarded: 7 * 24 * time.Hour}
	if !atOnce { // one task is kept for longer
		longer := keep
		longer.Discarded = 30 * 24 * time.Hour
		if n := prune(t, now, term, longer); n != 2499 {
			t.Errorf("deleted %d, want all but the one that is kept for longer", n)
		}
		if n := number(t, now, daysOf); n != before {
			t.Errorf("%d days, had %d", n, before)
		}
		now = open(t, dsn) // a handle tries again only after a while what it refused to drop
	}
	prune(t, now, term, keep)
	if n := number(t, now, daysOf); n >= before {
		t.Errorf("%d days, had %d", n, before)
	}
	if err := now.Maintain(ctx, term); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"tusk_attempt", "tusk_label", "tusk_key", "tusk_stop", "tusk_finished"} {
		if n := number(t, now, "select count(*) from "+table); n != 0 {
			t.Errorf("%s: %d rows are left", table, n)
		}
	}
	if list, err := now.List(ctx, store.Filter{}); err != nil || len(list) != 10 {
		t.Errorf("%d tasks are left, %v", len(list), err)
	}
	groups, err := now.Errors(ctx, store.ErrorFilter{})
	if err != nil || len(groups) != 1 || groups[0].Dead != 0 || groups[0].Count != 1 {
		t.Errorf("%+v, %v", groups, err)
	}
}

func TestADayOfWhichATaskIsUnfinishedStays(t *testing.T) {
	dsn := mysqltest.Database(t)
	past, now := at(t, dsn, time.Now().Add(-20*24*time.Hour)), open(t, dsn)
	if _, err := past.Migrate(t.Context(), -1); err != nil {
		t.Fatal(err)
	}
	enqueue(t, past, newTasks(1, "q")...)
	term := lead(t, now)
	if err := now.Maintain(t.Context(), term); err != nil {
		t.Fatal(err)
	}
	days := number(t, now, daysOf)
	prune(t, now, term, store.Retention{Completed: 24 * time.Hour, Cancelled: 24 * time.Hour, Discarded: 24 * time.Hour})
	if n := number(t, now, daysOf); n != days {
		t.Errorf("%d days, had %d", n, days)
	}
	if got := claim(t, now, startWorker(t, now), 1); len(got) != 1 {
		t.Error("the task is gone")
	}
}

// A task that has come back is not visible right after the day was marked, but while other tasks of the day are
// deleted.
func TestADayStaysOfWhichATaskIsSeenLateToHaveComeBack(t *testing.T) {
	dsn := mysqltest.Database(t)
	past, now := at(t, dsn, time.Now().Add(-20*24*time.Hour)), open(t, dsn)
	if _, err := past.Migrate(t.Context(), -1); err != nil {
		t.Fatal(err)
	}
	tasks := newTasks(2, "q")
	tasks[0].Key = "k"
	enqueue(t, past, tasks...)
	finish(t, past, claim(t, past, startWorker(t, past), 2))
	term := lead(t, now)
	if err := now.Maintain(t.Context(), term); err != nil {
		t.Fatal(err)
	}
	exec(t, now, "create trigger slow before delete on tusk_key for each row do sleep(3)")
	days := number(t, now, daysOf)
	var g sync.WaitGroup
	g.Go(func() {
		erasing := "select count(*) from information_schema.processlist where db = database() and state = 'User sleep'"
		for until := time.Now().Add(20 * time.Second); number(t, now, erasing) == 0; time.Sleep(50 * time.Millisecond) {
			if time.Now().After(until) {
				t.Error("nothing is deleted")
				return
			}
		}
		exec(t, now, "update tusk_task set state = 5 where id = ?", tasks[1].ID[:])
	})
	_, err := now.Prune(t.Context(), term,
		store.Retention{Completed: 24 * time.Hour, Cancelled: 24 * time.Hour, Discarded: 24 * time.Hour}, 1000)
	g.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if n := number(t, now, daysOf); n != days {
		t.Errorf("%d days, had %d", n, days)
	}
	if n := number(t, now, "select count(*) from tusk_task where id = ?", tasks[1].ID[:]); n != 1 {
		t.Error("the task is gone")
	}
}

// If a day is dropped from some tables only, what is left of its tasks must not come back.
func TestATaskOfWhichPartIsGoneDoesNotComeBack(t *testing.T) {
	dsn := mysqltest.Database(t)
	past, now := at(t, dsn, time.Now().Add(-20*24*time.Hour)), open(t, dsn)
	ctx := t.Context()
	if _, err := past.Migrate(ctx, -1); err != nil {
		t.Fatal(err)
	}
	tasks := newTasks(1, "q")
	tasks[0].Tags = []string{"x"}
	enqueue(t, past, tasks...)
	finish(t, past, claim(t, past, startWorker(t, past), 1))
	term := lead(t, now)
	if err := now.Maintain(ctx, term); err != nil {
		t.Fatal(err)
	}
	tx, err := now.DB().Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.Exec("select count(*) from tusk_task"); err != nil { // its days cannot be dropped now
		t.Fatal(err)
	}
	keep := store.Retention{Completed: 24 * time.Hour, Cancelled: 24 * time.Hour, Discarded: 24 * time.Hour}
	if _, err := now.Prune(ctx, term, keep, 0); err != nil { // it deletes none one by one
		t.Fatal(err)
	}
	if labels, rows := number(t, now, "select count(*) from tusk_label"),
		number(t, now, "select count(*) from tusk_task"); labels != 0 || rows != 1 {
		t.Fatalf("%d labels and %d tasks are left", labels, rows)
	}
	edited, err := now.Edit(ctx, store.Edit{IDs: []store.ID{tasks[0].ID}, Change: store.Change{Op: store.Retry}})
	if err != nil || len(edited) != 1 || edited[0].Result != store.Missing {
		t.Errorf("%+v, %v: want it to be missing", edited, err)
	}
	tx.Rollback()
	if _, err := open(t, dsn).Prune(ctx, term, keep, 0); err != nil {
		t.Fatal(err)
	}
	if n := number(t, now, "select count(*) from tusk_task"); n != 0 {
		t.Errorf("%d tasks are left", n)
	}
}

func TestDaysAreMadeAheadAndOnlyOnce(t *testing.T) {
	s := fresh(t)
	days := number(t, s, daysOf)
	if days < 4 {
		t.Errorf("%d days", days)
	}
	if err := s.Maintain(t.Context(), lead(t, s)); err != nil {
		t.Fatal(err)
	}
	if n := number(t, s, daysOf); n != days {
		t.Errorf("%d days, had %d", n, days)
	}
}

// A transaction that has read tasks and stays open keeps days from being made. Nobody else waits for that, and it is
// tried again after a while.
func TestADayThatCannotBeMadeKeepsNobodyWaiting(t *testing.T) {
	dsn := mysqltest.Database(t)
	past, now := at(t, dsn, time.Now().Add(-24*time.Hour)), open(t, dsn)
	ctx := t.Context()
	if _, err := past.Migrate(ctx, -1); err != nil {
		t.Fatal(err)
	}
	days, term := number(t, now, daysOf), lead(t, now)
	tx, err := now.DB().Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.Exec("select count(*) from tusk_task"); err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan error)
	go func() { stopped <- readWithoutWaiting(ctx, now, stop) }()
	maintain := func(s *mysql.Store) {
		t.Helper()
		if err := s.Maintain(ctx, term); err != nil {
			t.Error(err)
		}
	}
	maintain(now)
	close(stop)
	if err := <-stopped; err != nil {
		t.Errorf("others have to wait: %v", err)
	}
	if n := number(t, now, daysOf); n != days {
		t.Fatalf("%d days, had %d: the open transaction held nothing up", n, days)
	}
	tx.Rollback()
	maintain(now)
	if n := number(t, now, daysOf); n != days {
		t.Errorf("%d days, had %d: it was tried again at once", n, days)
	}
	later := open(t, dsn) // a handle tries again only after a while what it could not make
	maintain(later)
	if n := number(t, later, daysOf); n != days+1 {
		t.Errorf("%d days, had %d: none was made", n, days)
	}
}

// readWithoutWaiting reads tasks until it is stopped, on a session that fails instead of waiting.
func readWithoutWaiting(ctx context.Context, s *mysql.Store, stop <-chan struct{}) error {
	conn, err := s.DB().Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.ExecContext(ctx, // MySQL's change waits for a second
		"set session lock_wait_timeout = if(version() like '%MariaDB%', 0, 5)")
	for n := 0; err == nil; n++ {
		select {
		case <-stop:
			_, err = conn.ExecContext(ctx, "set session lock_wait_timeout = default")
			return err
		default:
			_, err = conn.ExecContext(ctx, "select count(*) from tusk_task")
		}
	}
	return err
}
