package mysql_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/mysql"
	"github.com/tuskqueue/tusk/store/mysql/mysqltest"
	"github.com/tuskqueue/tusk/store/storetest"
	"github.com/tuskqueue/tusk/store/storetest/wires"
)

// lose makes connections that match a condition go dead.
func lose(t *testing.T, through *wires.Wires, of *mysql.Store, which string, args ...any) {
	t.Helper()
	rows, err := of.DB().Query("select host from information_schema.processlist where db = database() and "+which, args...)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	n := 0
	for rows.Next() {
		var host string
		if err := rows.Scan(&host); err != nil {
			t.Fatal(err)
		}
		host = strings.Replace(host, "localhost", "127.0.0.1", 1)
		for _, w := range through.Open() {
			if w.Server.LocalAddr().String() == host {
				w.Die()
				n++
			}
		}
	}
	if n == 0 {
		t.Fatal("there is no such connection")
	}
}

// lockOf is the id of the connection that holds a worker's lock.
const lockOf = "is_used_lock(concat('tusk:', left(sha2(database(), 256), 16), ':', hex(?)))"

// beat beats with a deadline, and fails unless it finishes with some time to spare.
func beat(t *testing.T, s *mysql.Store, worker store.ID) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	began := time.Now()
	_, err := s.Extend(ctx, store.Beat{Worker: store.Worker{ID: worker, Queues: []string{"q"}}, TTL: time.Minute})
	if took := time.Since(began); err != nil || took > 2*time.Second {
		t.Errorf("a beat took %v: %v", took, err)
	}
}

// One connection of the pool is dead while the leader uses it to ask which workers are gone. Everything else works.
func TestABeatDoesNotWaitForALookAtWhoHasGone(t *testing.T) {
	dsn := mysqltest.Database(t)
	migrate(t, dsn)
	w, behind := wires.Start(t, dsn, wires.All)
	s, other := open(t, behind), open(t, dsn)
	s.DB().SetMaxIdleConns(1)
	worker, term := startWorker(t, s), lead(t, s)
	if _, err := s.Rescue(t.Context(), term, 10); err != nil {
		t.Fatal(err)
	}
	lose(t, w, other, "id not in ("+lockOf+", connection_id())", worker[:])
	var g sync.WaitGroup
	short, cancel := context.WithTimeout(t.Context(), 6*time.Second)
	defer cancel()
	asked := make(chan time.Duration, 1)
	g.Go(func() {
		began := time.Now()
		s.Rescue(short, term, 10)
		asked <- time.Since(began)
	})
	time.Sleep(300 * time.Millisecond)
	beat(t, s, worker)
	g.Wait()
	if took := <-asked; took < 3*time.Second {
		t.Errorf("the look was over after %v", took)
	}
}

// The connection that holds the locks of workers is dead. Beats go on, and the database learns at once that only the
// beats of those workers count. The server believes for a long time that somebody holds the lock.
func TestALostLockIsDisowned(t *testing.T) {
	dsn := mysqltest.Database(t)
	migrate(t, dsn)
	w, behind := wires.Start(t, dsn, wires.All)
	s, other := open(t, behind), open(t, dsn)
	worker := startWorker(t, s)
	watched := func() bool {
		return number(t, other, "select watched from tusk_worker where id = ?", worker[:]) != 0
	}
	if !watched() {
		t.Fatal("the worker is not attended")
	}
	lose(t, w, other, "id = "+lockOf, worker[:])
	beat(t, s, worker)
	for until := time.Now().Add(15 * time.Second); watched(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("its lock is lost, and the database was not told")
		}
	}
	beat(t, s, worker)
}

// The lock of a worker that has left is released while the same connection holds another worker's lock.
func TestTheLockOfAWorkerThatLeavesIsReleased(t *testing.T) {
	s := fresh(t)
	leaves, stays := startWorker(t, s), startWorker(t, s)
	has := func(worker store.ID) bool { return number(t, s, "select coalesce("+lockOf+", 0)", worker[:]) != 0 }
	if !has(leaves) || !has(stays) {
		t.Fatal("the workers are not attended")
	}
	signOff(t, s, leaves)
	for until := time.Now().Add(5 * time.Second); has(leaves); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("the lock is not released")
		}
	}
	if !has(stays) {
		t.Error("the lock of another worker is gone")
	}
}

// The lock of a worker means nothing on another server, though that one was started at the same time.
func TestServersThatAreStartedTogetherAreToldApart(t *testing.T) {
	run := func(server *mysqltest.Server) int64 {
		run, err := open(t, server.Database(t)).Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return run
	}
	primary := mysqltest.Start(t)
	replica := mysqltest.Start(t)
	again := run(primary)
	apart := func(a, b int64) time.Duration { return (time.Duration(a-b) * time.Microsecond).Abs() }
	if d := apart(again, run(primary)); d > 2*time.Second {
		t.Errorf("one server is %v apart from itself", d)
	}
	if d := apart(again, run(replica)); d < 30*time.Minute {
		t.Errorf("two servers are only %v apart", d)
	}
}

// dead returns a store whose user has the documented rights, and a worker of another process that has died: its lock
// is free, and its beat is overdue.
func dead(t *testing.T) (s, root *mysql.Store, worker store.ID, term int64) {
	t.Helper()
	dsn := mysqltest.Start(t).Database(t)
	migrate(t, dsn)
	root = open(t, dsn)
	if _, err := root.Roles(t.Context(), "dead", true); err != nil {
		t.Fatal(err)
	}
	s = asRole(t, root, dsn, "dead_work")
	dies := open(t, dsn)
	worker = storetest.NewID()
	b := store.Beat{Worker: store.Worker{ID: worker}, TTL: time.Hour, Every: 100 * time.Millisecond}
	if _, err := dies.Extend(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if number(t, s, "select watched from tusk_worker where id = ?", worker[:]) == 0 {
		t.Fatal("the worker is not attended")
	}
	dies.Close()
	time.Sleep(200 * time.Millisecond)
	return s, root, worker, lead(t, s)
}

// looks searches for dead workers once, and reports whether a worker has been declared dead.
func looks(t *testing.T, s *mysql.Store, worker store.ID, term int64) (dead bool) {
	t.Helper()
	if _, err := s.Rescue(t.Context(), term, 10); err != nil {
		t.Fatal(err)
	}
	return number(t, s, "select dead from tusk_worker where id = ?", worker[:]) != 0
}

// While nobody can be declared dead, beats may fail as well. So a worker's lock has to be found free twice afterwards.
func TestWhatWasSeenBeforeADeclarationFailedDoesNotCount(t *testing.T) {
	s, root, worker, term := dead(t)
	if looks(t, s, worker, term) {
		t.Fatal("one look is enough")
	}
	exec(t, root, "set global read_only = 1")
	time.Sleep(500 * time.Millisecond)
	if _, err := s.Rescue(t.Context(), term, 10); !errors.Is(err, store.ErrReadOnly) {
		t.Fatal(err)
	}
	exec(t, root, "set global read_only = 0")
	if looks(t, s, worker, term) {
		t.Error("the worker is declared dead by a look from before the server took writes again")
	}
	time.Sleep(500 * time.Millisecond)
	if !looks(t, s, worker, term) {
		t.Error("the worker is not declared dead")
	}
}

// Between two looks that are far apart, the lock may have been held.
func TestALookOfLongAgoDoesNotCount(t *testing.T) {
	s, _, worker, term := dead(t)
	if looks(t, s, worker, term) {
		t.Fatal("one look is enough")
	}
	time.Sleep(3100 * time.Millisecond)
	if looks(t, s, worker, term) {
		t.Error("the worker is declared dead by a look of long ago")
	}
	time.Sleep(500 * time.Millisecond)
	if !looks(t, s, worker, term) {
		t.Error("the worker is not declared dead")
	}
}

// Whoever locks several workers does so in the order of their ids, after the leader's row.
func TestWorkersAreLockedInTheOrderOfTheirIDs(t *testing.T) {
	dsn := mysqltest.Database(t)
	migrate(t, dsn)
	s, other, dies := open(t, dsn), open(t, dsn), open(t, dsn)
	low, high := store.ID{1}, store.ID{2}
	beatOf := func(s *mysql.Store, worker store.ID, ttl time.Duration) {
		b := store.Beat{Worker: store.Worker{ID: worker}, TTL: ttl, Every: 100 * time.Millisecond}
		if _, err := s.Extend(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	beatOf(dies, high, 200*time.Millisecond) // found first, since its lease ends first
	beatOf(dies, low, 300*time.Millisecond)
	dies.Close()
	time.Sleep(500 * time.Millisecond)
	term := lead(t, s)
	for name, of := range map[string]struct {
		do     func() error
		leader int64 // what can be locked of the leader's row meanwhile
	}{
		"disown": {func() error { return s.Disown(t.Context(), high, low) }, 1},
		"rescue": {func() error { _, err := s.Rescue(t.Context(), term, 10); return err }, 0},
	} {
		tx, err := other.DB().Begin()
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		if _, err := tx.Exec("select 1 from tusk_worker where id = ? for update", low[:]); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- of.do() }()
		time.Sleep(200 * time.Millisecond) // the server remembers for a while who waited
		for until := time.Now().Add(10 * time.Second); number(t, other,
			"select count(*) from information_schema.innodb_trx where trx_state = 'LOCK WAIT'") == 0; {
			if time.Now().After(until) {
				t.Fatal(name, "does not wait for the first worker")
			}
			time.Sleep(50 * time.Millisecond)
		}
		free := "select count(*) from %s for update skip locked"
		if number(t, other, fmt.Sprintf(free, "tusk_worker where id = ?"), high[:]) != 1 {
			t.Errorf("%s: the second worker is locked before the first", name)
		}
		if number(t, other, fmt.Sprintf(free, "tusk_leader where one = 1")) != of.leader {
			t.Errorf("%s: want the leader's row to be locked: %v", name, of.leader == 0)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
