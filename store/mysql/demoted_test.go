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
	"github.com/tuskqueue/tusk/store/storetest"
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

// A lock on a server that takes no writes proves nothing, since the leader looks at the new primary. The process of a
// user who may write nevertheless disowns the lock and releases it. Any other process holds it until it can do so.
func TestLocksAreNotKeptOnAServerThatTakesNoWrites(t *testing.T) {
	dsn := mysqltest.Start(t).Database(t)
	migrate(t, dsn)
	root := open(t, dsn)
	if _, err := root.Roles(t.Context(), "demoted", true); err != nil {
		t.Fatal(err)
	}
	term := lead(t, root)
	for name, s := range map[string]*mysql.Store{"root": open(t, dsn), "work": asRole(t, root, dsn, "demoted_work")} {
		t.Run(name, func(t *testing.T) {
			w := storetest.NewID()
			beat := func() error {
				b := store.Beat{Worker: store.Worker{ID: w}, TTL: time.Hour, Every: 100 * time.Millisecond}
				_, err := s.Extend(t.Context(), b)
				return err
			}
			if err := beat(); err != nil {
				t.Fatal(err)
			}
			is := func(what string) bool {
				return number(t, root, "select coalesce("+what+", 0) from tusk_worker where id = ?", w[:], w[:]) != 0
			}
			held := func() bool { return is("(select " + lockOf + ")") }
			watched := func() bool { return is("if(? is null, 0, watched)") }
			await := func(what string, does func() bool) {
				t.Helper()
				for until := time.Now().Add(15 * time.Second); !does(); time.Sleep(50 * time.Millisecond) {
					if time.Now().After(until) {
						t.Fatal(what)
					}
				}
			}
			if await("the lock is not taken", held); !watched() {
				t.Fatal("the worker is not attended")
			}
			exec(t, root, "set global read_only = 1")
			defer exec(t, root, "set global read_only = 0")
			if name == "root" {
				await("the lock is kept", func() bool { return !held() })
				time.Sleep(1500 * time.Millisecond)
				if held() || watched() {
					t.Error("the lock is taken again")
				}
				exec(t, root, "set global read_only = 0")
				await("the lock is not taken again", held)
				return
			}
			// The server takes no writes for longer than a beat is due, and than it takes to see that a lock is free.
			for until := time.Now().Add(4 * time.Second); time.Now().Before(until); time.Sleep(200 * time.Millisecond) {
				if err := beat(); !errors.Is(err, store.ErrReadOnly) {
					t.Fatal(err)
				}
				if _, err := s.Rescue(t.Context(), term, 10); err != nil && !errors.Is(err, store.ErrReadOnly) {
					t.Fatal(err)
				}
			}
			exec(t, root, "set global read_only = 0")
			for until := time.Now().Add(3 * time.Second); time.Now().Before(until); time.Sleep(100 * time.Millisecond) {
				if _, err := s.Rescue(t.Context(), term, 10); err != nil {
					t.Fatal(err)
				}
			}
			if err := beat(); err != nil {
				t.Error("the worker was declared dead:", err)
			}
			await("the lock is not taken again", held)
			await("the worker is not attended again", func() bool { return beat() == nil && watched() })
		})
	}
}

func claims(t *testing.T, s *mysql.Store, w store.ID) error {
	tasks, err := s.Claim(t.Context(), store.ClaimRequest{Worker: w, Queues: []string{"q"}, Limit: 1,
		Token: store.NewToken()})
	if len(tasks) > 0 {
		return fmt.Errorf("claimed %d tasks", len(tasks))
	}
	return err
}
