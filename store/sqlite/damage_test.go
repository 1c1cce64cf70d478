package sqlite_test

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/sqlite"
)

// Damaged rows, which the owner of the file can write, do not hide or hold up anything else.
func TestDamagedRowsHideNoOthers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tusk.db")
	s := open(t, path)
	if _, err := s.Migrate(t.Context(), -1); err != nil {
		t.Fatal(err)
	}
	tasks := newTasks(3)
	tasks[1].Tags = []string{"a"}
	if _, err := s.Enqueue(t.Context(), tasks); err != nil {
		t.Fatal(err)
	}
	w := register(t, s)
	db := pool(t, path)
	execute(t, db, "update tusk_task set tags = 'not JSON' where tags is not null")
	execute(t, db, "update tusk_worker set queues = 'not JSON'")
	if workers, err := s.Workers(t.Context()); err != nil || len(workers) != 1 {
		t.Error(workers, err)
	}
	claimed := claim(t, s, w, 10)
	if len(claimed) != 3 || claimed[0].Damage != "" || claimed[1].Damage == "" || claimed[2].Damage != "" {
		t.Fatalf("%+v", claimed)
	}
	out := store.Outcome{Task: &claimed[1], State: store.Discarded, Reason: "damaged"}
	if lost, err := s.Finish(t.Context(), []store.Outcome{out}); err != nil || len(lost) > 0 {
		t.Error(lost, err)
	}
	if list, err := s.List(t.Context(), store.Filter{}); err != nil || len(list) != 3 {
		t.Error(len(list), err)
	}
}

// A lane that counts tasks that do not exist, as it may after .recover, holds up no other lane.
func TestALaneThatCountsWrongHoldsUpNoOther(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tusk.db")
	var log bytes.Buffer
	s, err := sqlite.New(t.Context(), pool(t, path), sqlite.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Migrate(t.Context(), -1); err != nil {
		t.Fatal(err)
	}
	tasks := newTasks(2)
	tasks[0].Priority = -5
	if _, err := s.Enqueue(t.Context(), tasks); err != nil {
		t.Fatal(err)
	}
	w := register(t, s)
	if first := claim(t, s, w, 1); len(first) != 1 || first[0].ID != tasks[0].ID {
		t.Fatalf("%+v", first)
	}
	db := pool(t, path)
	execute(t, db, "update tusk_lane set available = 7 where priority = -5")
	if second := claim(t, s, w, 5); len(second) != 1 || second[0].ID != tasks[1].ID {
		t.Errorf("%+v", second)
	}
	if more := claim(t, s, w, 5); len(more) != 0 {
		t.Errorf("%+v", more)
	}
	if n := strings.Count(log.String(), "level=WARN"); n != 1 || !strings.Contains(log.String(), "priority=-5 counted=7") {
		t.Errorf("%d warnings: %s", n, log.String())
	}
	var counted int
	if err := db.QueryRow("select sum(available) from tusk_lane").Scan(&counted); err != nil || counted != 0 {
		t.Errorf("%d tasks are counted, %v", counted, err)
	}
}
