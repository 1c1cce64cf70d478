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
	if !errors.Is(err, store.ErrUnstorable) || !errors.Is(err, store.ErrNotCommitted) ||
		!strings.Contains(err.Error(), "max_allowed_packet, which is 1048576") {
		t.Errorf("args that are larger: %v", err)
	}
	enqueue(t, s, newTasks(1, "q")...)
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
				!strings.Contains(err.Error(), "max_allowed_packet, which is 1048576") {
				t.Errorf("%q, %d bytes: %v", options, len(tasks[0].Args), err)
			}
		}
		if number(t, s, "select connection_id()") != connection {
			t.Errorf("%q: the server has closed the connection", options)
		}
	}
}
