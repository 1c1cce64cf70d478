package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/sqlite/sqlitefile"
)

// pool opens the file of a store once more.
func pool(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sqlitefile.Pool(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func execute(t *testing.T, db *sql.DB, text string) {
	t.Helper()
	if _, err := db.Exec(text); err != nil {
		t.Fatal(err)
	}
}

func TestTheSchemaGoesUpAndDown(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tusk.db")
	s := open(t, path)
	execute(t, pool(t, path), "create table mine (a)")
	if _, err := s.Enqueue(t.Context(), newTasks(1)); !errors.Is(err, store.ErrSchemaMissing) ||
		!errors.Is(err, store.ErrNotCommitted) {
		t.Error(err)
	}
	for range 2 {
		steps, err := s.Migrate(t.Context(), -1)
		if err != nil || len(steps) != 2 || steps[0].Name != "ledger" || steps[1].AppliedAt.IsZero() {
			t.Fatal(steps, err)
		}
		if again, err := s.Migrate(t.Context(), -1); err != nil || len(again) != 0 {
			t.Error(again, err)
		}
		all, err := s.Migrations(t.Context())
		if err != nil || len(all) != 2 || all[1].AppliedAt.IsZero() || all[1].SQL == "" {
			t.Error(all, err)
		}
		if _, err := s.Enqueue(t.Context(), newTasks(3)); err != nil {
			t.Error(err)
		}
		if got := len(claim(t, s, register(t, s), 10)); got != 3 {
			t.Errorf("claimed %d", got)
		}
		if steps, err := s.Migrate(t.Context(), 0); err != nil || len(steps) != 2 {
			t.Fatal(steps, err)
		}
		if all, err := s.Migrations(t.Context()); err != nil || len(all) != 2 || !all[0].AppliedAt.IsZero() {
			t.Error(all, err)
		}
		if _, err := s.Count(t.Context()); !errors.Is(err, store.ErrSchemaMissing) {
			t.Error(err)
		}
	}
	execute(t, pool(t, path), "select a from mine")
}

func TestANewerSchemaThatThisProgramWorksWith(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tusk.db")
	s := open(t, path)
	if _, err := s.Migrate(t.Context(), -1); err != nil {
		t.Fatal(err)
	}
	execute(t, pool(t, path), "insert into tusk_migration (version_id, is_applied) values (9, 1)")
	s = open(t, path)
	if _, err := s.Enqueue(t.Context(), newTasks(1)); err != nil {
		t.Fatal(err)
	}
	if steps, err := s.Migrate(t.Context(), -1); err != nil || len(steps) != 0 {
		t.Error(steps, err)
	}
	if _, err := s.Migrate(t.Context(), 1); !errors.Is(err, store.ErrSchemaNew) {
		t.Error(err)
	}
}

func TestASchemaThatIsNotOursIsRefused(t *testing.T) {
	for _, test := range []struct {
		name, text string
		want       error
	}{
		{"a table of that name", "create table tusk_task (a)", store.ErrSchemaForeign},
		{"a version table of another kind", "create table tusk_migration (a)", store.ErrSchemaForeign},
		{"a newer one that older programs do not work with", newer + "; pragma user_version = 9", store.ErrSchemaNew},
		{"one without its tables", versioned + "insert into tusk_migration (version_id, is_applied) values (1, 1), (2, 1)",
			store.ErrSchemaForeign},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "tusk.db")
			execute(t, pool(t, path), test.text)
			s := open(t, path)
			if _, err := s.Enqueue(t.Context(), newTasks(1)); !errors.Is(err, test.want) {
				t.Error(err)
			}
			if _, err := s.Count(t.Context()); !errors.Is(err, test.want) {
				t.Error(err)
			}
			if _, err := s.Migrate(t.Context(), -1); !errors.Is(err, test.want) {
				t.Error(err)
			}
		})
	}
}

// TestWhoLooksWhileAnotherMigratesTakesNothingForForeign looks all the time, because a look takes two statements.
func TestWhoLooksWhileAnotherMigratesTakesNothingForForeign(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tusk.db")
	s, other := open(t, path), open(t, path)
	done := make(chan error, 1)
	go func() {
		var err error
		for range 40 {
			for _, to := range []int64{-1, 0} {
				if err == nil {
					_, err = other.Migrate(context.Background(), to)
				}
			}
		}
		done <- err
	}()
	for {
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			return
		default:
			if _, err := s.Migrations(t.Context()); errors.Is(err, store.ErrSchemaForeign) {
				t.Error(err)
				<-done
				return
			}
		}
	}
}

const (
	versioned = "create table tusk_migration (id integer primary key, version_id integer, is_applied integer, " +
		"tstamp text);"
	newer = versioned + "insert into tusk_migration (version_id, is_applied) values (0, 1), (1, 1), (2, 1), (3, 1)"
)
