package mysql_test

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/mysql"
	"github.com/tuskqueue/tusk/store/mysql/mysqltest"
)

// ofSize returns tasks with args of a size, all bytes of which have to be escaped in a statement.
func ofSize(n, size int) []store.NewTask {
	tasks := newTasks(n, "q")
	for i := range tasks {
		tasks[i].Args = fmt.Append(nil, `"`, strings.Repeat(`\\`, size/2), `"`)
	}
	return tasks
}

func TestAServerThatTakesSmallPacketsGetsSmallOnes(t *testing.T) {
	server := mysqltest.Start(t, "--max-allowed-packet=1M")
	dsn := server.Database(t)
	migrate(t, dsn)
	s := open(t, dsn)
	warnings, err := s.Check(t.Context())
	if err != nil || !strings.Contains(strings.Join(warnings, "\n"), "max_allowed_packet is 1048576") {
		t.Errorf("%q, %v", warnings, err)
	}
	w := startWorker(t, s)
	for _, tasks := range [][]store.NewTask{ofSize(40, 100_000), ofSize(3, 400_000), ofSize(1, 600_000)} {
		enqueue(t, s, tasks...)
		claimed := claim(t, s, w, len(tasks))
		outcomes := completed(claimed)
		for i := range outcomes {
			outcomes[i].State, outcomes[i].Fingerprint = store.Discarded, "f"
			outcomes[i].Error, outcomes[i].Trace = strings.Repeat("'", 30_000), strings.Repeat(`"`, 60_000)
			outcomes[i].Note = &store.Note{Output: claimed[i].Args}
		}
		if lost, err := s.Finish(t.Context(), outcomes); err != nil || len(lost) > 0 || len(claimed) != len(tasks) {
			t.Fatalf("%d of %d claimed, %d lost: %v", len(claimed), len(tasks), len(lost), err)
		}
	}
	_, err = s.Enqueue(t.Context(), ofSize(1, 2_000_000))
	if !errors.Is(err, store.ErrUnstorable) || !errors.Is(err, store.ErrNotCommitted) || !saysHowLarge(err, 2_000_002) {
		t.Errorf("args that are larger: %v", err)
	}
	enqueue(t, s, newTasks(1, "q")...)
	exec(t, s, "set global max_allowed_packet = 4194304")
	_, err = s.Enqueue(t.Context(), ofSize(1, 2_000_000))
	if !saysHowLarge(err, 2_000_002) || !strings.Contains(err.Error(), "it is 4194304 now: restart this process") {
		t.Errorf("args that are larger, after the limit was raised: %v", err)
	}
	enqueue(t, open(t, dsn), ofSize(1, 2_000_000)...)
}

// saysHowLarge reports whether an error names the limit of a megabyte, and the size of a value.
func saysHowLarge(err error, size int) bool {
	return err != nil && strings.Contains(err.Error(), "max_allowed_packet, which is 1048576 bytes") &&
		strings.Contains(err.Error(), fmt.Sprintf("a value of %d bytes", size))
}

// The user's transaction goes on without the call that was refused.
func TestATransactionOfTheUsersOutlivesWhatIsTooLarge(t *testing.T) {
	server := mysqltest.Start(t, "--max-allowed-packet=1M")
	dsn := server.Database(t)
	migrate(t, dsn)
	for name, s := range map[string]*mysql.Store{"own pool": open(t, dsn), "user's pool": newOn(t, dsn, nil),
		"user's pool with settings": newOn(t, dsn, odd)} {
		tx, err := s.DB().Begin()
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		in, err := s.Tx(tx)
		if err != nil {
			t.Fatal(err)
		}
		for _, size := range []int{2_000_000, 20_000_000} {
			_, err = in.Enqueue(t.Context(), ofSize(1, size))
			if !errors.Is(err, store.ErrUnstorable) || !saysHowLarge(err, size+2) {
				t.Errorf("%s: %v", name, err)
			}
		}
		tasks := newTasks(1, "q")
		if _, err := in.Enqueue(t.Context(), tasks); err != nil {
			t.Errorf("%s: a small task afterwards: %v", name, err)
		}
		if err := tx.Commit(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if n := number(t, s, "select count(*) from tusk_task where id = ?", tasks[0].ID[:]); n != 1 {
			t.Errorf("%s: the small task is not stored", name)
		}
	}
}

// The driver of a user's pool may send more than the server takes. The server then closes the connection.
func TestAPoolOfTheUsersSendsNothingThatIsTooLarge(t *testing.T) {
	server := mysqltest.Start(t, "--max-allowed-packet=1M")
	dsn := server.Database(t)
	migrate(t, dsn)
	plain := newTasks(1, "q") // a little smaller than a packet
	plain[0].Args = fmt.Append(nil, `"`, strings.Repeat("x", 1<<20-100), `"`)
	for _, options := range []string{"", "interpolateParams=true", "interpolateParams=true&multiStatements=true"} {
		db, err := sql.Open("mysql", strings.Replace(strings.Replace(dsn, "mysql://root@", "root@tcp(", 1), "/", ")/", 1)+"?"+
			options)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		s, err := mysql.New(t.Context(), db, mysql.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		db.SetMaxOpenConns(1)
		enqueue(t, s, ofSize(1, 500_000)...)
		connection := number(t, s, "select connection_id()")
		for _, tasks := range [][]store.NewTask{ofSize(1, 20_000_000), ofSize(1, 600_000), plain} {
			_, err := s.Enqueue(t.Context(), tasks)
			if !errors.Is(err, store.ErrUnstorable) || !errors.Is(err, store.ErrNotCommitted) ||
				!saysHowLarge(err, len(tasks[0].Args)) {
				t.Errorf("%q, %d bytes: %v", options, len(tasks[0].Args), err)
			}
		}
		if number(t, s, "select connection_id()") != connection {
			t.Errorf("%q: the server has closed the connection", options)
		}
	}
}
