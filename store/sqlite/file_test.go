package sqlite_test

import (
	"bytes"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/sqlite"
	"github.com/tuskqueue/tusk/store/sqlite/sqlitefile"
)

func TestAnEmptyPollWritesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tusk.db")
	s := open(t, path)
	if _, err := s.Migrate(t.Context(), -1); err != nil {
		t.Fatal(err)
	}
	worker := register(t, s)
	lead, err := s.Lead(t.Context(), store.Candidate{ID: newID(), TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Enqueue(t.Context(), []store.NewTask{
		{ID: newID(), Kind: "k", Queue: "default", Delay: time.Hour}}); err != nil {
		t.Fatal(err)
	}
	before := readLog(t, path)
	for range 50 {
		claim(t, s, worker, 10)
		if did, err := s.Admit(t.Context(), lead.Term, 100); err != nil || did.Count != 0 || did.Next < time.Minute {
			t.Fatal(did, err)
		}
		if tasks, err := s.Rescue(t.Context(), lead.Term, 100); err != nil || len(tasks) != 0 {
			t.Fatal(tasks, err)
		}
		if n, err := s.Prune(t.Context(), lead.Term, store.Retention{Completed: time.Hour, Discarded: time.Hour,
			Stats: time.Hour}, 100); err != nil || n != 0 {
			t.Fatal(n, err)
		}
		if _, err := s.Finish(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	// A claim that finds a lane only through the writer does not write anything either.
	if tasks, err := s.Claim(t.Context(), store.ClaimRequest{Worker: worker, Queues: []string{"default"}, Limit: 1,
		Token: store.NewToken(), Again: true}); err != nil || len(tasks) != 0 {
		t.Fatal(tasks, err)
	}
	if !bytes.Equal(readLog(t, path), before) {
		t.Error("the write-ahead log has changed")
	}
}

func readLog(t *testing.T, path string) []byte {
	t.Helper()
	log, err := os.ReadFile(path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	return log
}

func TestTheFileIsForItsOwnerAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tusk.db")
	s := open(t, path)
	if _, err := s.Migrate(t.Context(), -1); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{path, path + "-wal", path + "-shm"} {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", file, info.Mode().Perm())
		}
	}
}

func TestWhatCannotBeOpenedSaysWhatToDo(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, test := range []struct{ name, dsn, hint string }{
		{"nothing", "", "no file is named"},
		{"no file", "sqlite:", "no file is named"},
		{"no file, options", "sqlite:?_pragma=cache_size(-100)", "no file is named"},
		{"memory", "sqlite::memory:", "store/memory"},
		{"memory by mode", "file:x?mode=memory", "store/memory"},
		{"read-only by mode", "file:x?mode=ro", "leave mode=ro out"},
		{"directory", dir, "is a directory: name a file in it"},
		{"missing parent", filepath.Join(dir, "no/such/tusk.db"), "mkdir -p"},
		{"parent is a file", filepath.Join(write("plain", "x"), "tusk.db"), "not a directory"},
		{"not a database", write("text.db", strings.Repeat("this is no database\n", 100)), "not an SQLite database"},
		{"a pool that does not sync", filepath.Join(dir, "off.db") + "?_pragma=synchronous(off)", "synchronous=full"},
		{"host", "sqlite://host/tusk.db", "a file has no host"},
		{"bad escape", "sqlite:100%.db", "%25"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, err := sqlitefile.Open(t.Context(), test.dsn)
			if err == nil {
				s.Close()
				t.Fatal("opened")
			}
			if !strings.Contains(err.Error(), test.hint) {
				t.Errorf("%v\nwant a hint like %q", err, test.hint)
			}
		})
	}
}

func TestEveryFormOfDSNNamesTheFile(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for dsn, file := range map[string]string{
		"a.db":                              "a.db",
		"sqlite:b.db":                       "b.db",
		"sqlite:./c.db":                     "c.db",
		"sqlite:" + dir + "/d.db":           "d.db",
		"sqlite://" + dir + "/e.db":         "e.db",
		"file:f.db":                         "f.db",
		"file://" + dir + "/g.db":           "g.db",
		"sqlite:h.db?_pragma=cache_size(9)": "h.db",
		"sqlite:with%20space%3F.db":         "with space?.db",
		"sqlite:hash#50%25.db":              "hash#50%.db",
	} {
		open(t, dsn)
		if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
			t.Errorf("%s: %v", dsn, err)
		}
	}
	if entries, _ := filepath.Glob(dir + "/*.db"); len(entries) != 10 {
		t.Errorf("%q", entries)
	}
}

func TestAReadOnlyFileIsRefused(t *testing.T) {
	if os.Getuid() == 0 {
		// Root may write to any file, so this checks that SQLite's own refusal is reported well.
		db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "tusk.db")+"?_pragma=query_only(1)")
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if _, err := sqlite.New(t.Context(), db, sqlite.Options{}); !errors.Is(err, store.ErrReadOnly) {
			t.Error(err)
		}
		return
	}
	path := filepath.Join(t.TempDir(), "tusk.db")
	open(t, path).Close()
	if err := os.Chmod(path, 0o400); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlitefile.Open(t.Context(), path); !errors.Is(err, store.ErrReadOnly) {
		t.Error(err)
	}
}

func TestASmallPoolIsRefused(t *testing.T) {
	db, err := sqlitefile.Pool(filepath.Join(t.TempDir(), "tusk.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	_, err = sqlite.New(t.Context(), db, sqlite.Options{})
	if err == nil || !strings.Contains(err.Error(), "SetMaxOpenConns") {
		t.Error(err)
	}
}

func TestAfterCloseEverythingFailsAtOnce(t *testing.T) {
	s := migrated(t)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error("a second close:", err)
	}
	if _, err := s.Enqueue(t.Context(), newTasks(1)); !errors.Is(err, sqlite.ErrClosed) {
		t.Error(err)
	}
	if _, err := s.Count(t.Context()); !errors.Is(err, sqlite.ErrClosed) {
		t.Error(err)
	}
}

func TestATransactionOnAnotherFileIsRefused(t *testing.T) {
	s, other := migrated(t), migrated(t)
	db, err := sqlitefile.Pool(other.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	in, err := s.Tx(tx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := in.Enqueue(t.Context(), newTasks(1)); !errors.Is(err, store.ErrUnsupported) {
		t.Error(err)
	}
}
