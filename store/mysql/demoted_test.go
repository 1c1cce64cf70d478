package mysql_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/mysql"
	"github.com/tuskqueue/tusk/store/mysql/mysqltest"
)

// A primary becomes a replica and stays up. Connections to it are given up, so that new ones lead to the new primary.
func TestConnectionsToAServerThatTakesNoWritesAreGivenUp(t *testing.T) {
	server := mysqltest.Start(t)
	dsn := server.Database(t)
	migrate(t, dsn)
	root := open(t, dsn)
	exec(t, root, "create user app@localhost identified by 'secret'")
	exec(t, root, "create user app@'127.0.0.1' identified by 'secret'")
	exec(t, root, "grant all on *.* to app@localhost")
	exec(t, root, "grant all on *.* to app@'127.0.0.1'")
	for _, right := range []string{"super", "read only admin"} { // whoever has them may write all the same
		exec(t, root, "revoke "+right+" on *.* from app@localhost")
		exec(t, root, "revoke "+right+" on *.* from app@'127.0.0.1'")
	}
	s := open(t, strings.Replace(dsn, "root@", "app:secret@", 1))
	s.DB().SetMaxOpenConns(1)
	w := startWorker(t, s)
	enqueue(t, s, newTasks(5, "q")...)
	tasks := claim(t, s, w, 1)
	exec(t, root, "set global read_only = 1")
	connection := func() int64 { return number(t, s, "select connection_id()") }
	for name, call := range map[string]func() error{
		"enqueue": func() error { _, err := s.Enqueue(t.Context(), newTasks(1, "q")); return err },
		"finish":  func() error { _, err := s.Finish(t.Context(), completed(tasks)); return err },
		"beat":    func() error { _, err := s.Extend(t.Context(), store.Beat{Worker: store.Worker{ID: w}}); return err },
		"claim":   func() error { return claims(t, s, w) },
	} {
		before := connection()
		if err := call(); !errors.Is(err, store.ErrReadOnly) {
			t.Errorf("%s: %v", name, err)
		}
		if connection() == before {
			t.Errorf("%s: the connection is kept", name)
		}
	}
	exec(t, root, "set global read_only = 0")
	finish(t, s, tasks)
}

// A lock on a server that takes no writes proves nothing, since the leader looks at the new primary.
func TestLocksAreNotKeptOnAServerThatTakesNoWrites(t *testing.T) {
	dsn := mysqltest.Start(t).Database(t)
	migrate(t, dsn)
	s, root := open(t, dsn), open(t, dsn)
	w := startWorker(t, s)
	await := func(held bool) {
		t.Helper()
		free := "select " + lockOf + " is null"
		for until := time.Now().Add(15 * time.Second); number(t, root, free, w[:]) == 1 == held; {
			if time.Now().After(until) {
				t.Fatalf("the lock is held: want %v", held)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	await(true)
	exec(t, root, "set global read_only = 1")
	await(false)
	time.Sleep(1500 * time.Millisecond)
	await(false)
	exec(t, root, "set global read_only = 0")
	await(true)
}

func claims(t *testing.T, s *mysql.Store, w store.ID) error {
	tasks, err := s.Claim(t.Context(), store.ClaimRequest{Worker: w, Queues: []string{"q"}, Limit: 1,
		Token: store.NewToken()})
	if len(tasks) > 0 {
		return fmt.Errorf("claimed %d tasks", len(tasks))
	}
	return err
}
