package sqlite_test

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/sqlite"
	"github.com/tuskqueue/tusk/store/sqlite/sqlitefile"
	"github.com/tuskqueue/tusk/store/storetest"
)

// engine makes a file for each test. Every handle has a pool of its own, as another process would have.
var engine = storetest.Engine{
	Shared: true,
	New: func(t testing.TB) func() store.Store {
		path := filepath.Join(t.TempDir(), "tusk.db")
		s := open(t, path)
		if _, err := s.Migrate(t.Context(), -1); err != nil {
			t.Fatal(err)
		}
		return func() store.Store { return open(t, path) }
	},
	OneWriter: true,
	Begin: func(t testing.TB, s store.Store) (any, func() error, func() error) {
		db, err := sqlitefile.Pool(s.(*sqlite.Store).Path())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		tx, err := db.BeginTx(t.Context(), &sql.TxOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return tx, tx.Commit, tx.Rollback
	},
}

func TestConformance(t *testing.T) { storetest.Run(t, engine) }

func TestSameAsMemory(t *testing.T) { storetest.Compare(t, engine) }

func TestReruns(t *testing.T) { storetest.Reruns(t, engine, 2000) }

func BenchmarkTicks(b *testing.B) { storetest.BenchTicks(b, engine) }
