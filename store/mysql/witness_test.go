package mysql_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/mysql"
	"github.com/tuskqueue/tusk/store/mysql/mysqltest"
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
