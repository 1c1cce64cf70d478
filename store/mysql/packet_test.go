package mysql_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tuskqueue/tusk/store"
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
	_, err := newOn(t, dsn, nil).Enqueue(t.Context(), ofSize(1, 20_000_000))
	if !errors.Is(err, store.ErrUnstorable) || !errors.Is(err, store.ErrNotCommitted) ||
		!strings.Contains(err.Error(), "max_allowed_packet, which is 1048576") {
		t.Error(err)
	}
}
