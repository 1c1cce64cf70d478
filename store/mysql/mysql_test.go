package mysql_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"testing"

	driver "github.com/go-sql-driver/mysql"
	"go.uber.org/goleak"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/mysql"
	"github.com/tuskqueue/tusk/store/mysql/mysqltest"
	"github.com/tuskqueue/tusk/store/storetest"
)

// No test leaves a goroutine behind. Examples cannot skip themselves.
func TestMain(m *testing.M) {
	if err := mysqltest.Missing(); err != nil {
		fmt.Println("SKIPPED, not tested: examples:", err)
		flag.Set("test.skip", "^Example")
	}
	goleak.VerifyTestMain(mysqltest.Around{Tests: m})
}

var engine = storetest.Engine{
	Shared: true,
	New: func(t testing.TB) func() store.Store {
		dsn := mysqltest.Database(t)
		migrate(t, dsn)
		return func() store.Store { return open(t, dsn) }
	},
	Begin: func(t testing.TB, s store.Store) (any, func() error, func() error) {
		tx, err := s.(*mysql.Store).DB().Begin()
		if err != nil {
			t.Fatal(err)
		}
		return tx, tx.Commit, tx.Rollback
	},
	Crowded: crowded,
	TakenBack: func(err error) bool {
		said := (*driver.MySQLError)(nil)
		return errors.As(err, &said) && said.Number == 1213
	},
}

// open opens a handle that is closed with the test.
func open(t testing.TB, dsn string) *mysql.Store {
	t.Helper()
	s, err := mysql.Open(context.Background(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func migrate(t testing.TB, dsn string) {
	t.Helper()
	s, err := mysql.Open(context.Background(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Migrate(context.Background(), -1); err != nil {
		t.Fatal(err)
	}
}

// fresh opens a handle on a database of the test's own.
func fresh(t testing.TB) *mysql.Store {
	t.Helper()
	dsn := mysqltest.Database(t)
	migrate(t, dsn)
	return open(t, dsn)
}

func exec(t testing.TB, s *mysql.Store, text string, args ...any) {
	t.Helper()
	if _, err := s.DB().Exec(text, args...); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
}

func number(t testing.TB, s *mysql.Store, text string, args ...any) (n int64) {
	t.Helper()
	if err := s.DB().QueryRow(text, args...).Scan(&n); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return n
}

func TestMySQLKeepsTheContract(t *testing.T) { storetest.Run(t, engine) }

func TestMySQLDoesWhatTheReferenceDoes(t *testing.T) { storetest.Compare(t, engine) }

func TestMySQLReruns(t *testing.T) { storetest.Reruns(t, engine, 1000) }

func BenchmarkTicks(b *testing.B) { storetest.BenchTicks(b, engine) }
