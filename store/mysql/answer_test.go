package mysql_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	driver "github.com/go-sql-driver/mysql"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/mysql"
	"github.com/tuskqueue/tusk/store/mysql/mysqltest"
)

// answers makes connections that run each statement and then replace its error, as a proxy may.
type answers struct {
	sqldriver.Connector
	replace atomic.Pointer[func(text string, err error) error]
}

func (a *answers) Connect(ctx context.Context) (sqldriver.Conn, error) {
	conn, err := a.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &answered{conn.(fullConn), a}, nil
}

// fullConn is what the driver's connections implement.
type fullConn interface {
	sqldriver.Conn
	sqldriver.ConnBeginTx
	sqldriver.ConnPrepareContext
	sqldriver.ExecerContext
	sqldriver.NamedValueChecker
	sqldriver.QueryerContext
	sqldriver.SessionResetter
	sqldriver.Validator
}

type answered struct {
	fullConn
	by *answers
}

func (c *answered) ExecContext(
	ctx context.Context, text string, args []sqldriver.NamedValue,
) (sqldriver.Result, error) {
	result, err := c.fullConn.ExecContext(ctx, text, args)
	if replace := c.by.replace.Load(); replace != nil {
		err = (*replace)(text, err)
	}
	return result, err
}

// answering opens an engine on a database of the test's own whose commits are answered by replace.
func answering(t *testing.T) (s *mysql.Store, commits func(replace func() error)) {
	t.Helper()
	dsn := mysqltest.Database(t)
	migrate(t, dsn)
	a := &answers{Connector: connector(t, dsn, nil)}
	db := sql.OpenDB(a)
	t.Cleanup(func() { db.Close() })
	s, err := mysql.New(t.Context(), db, mysql.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, func(replace func() error) {
		f := func(text string, err error) error {
			if err == nil && strings.HasSuffix(text, "commit") {
				return replace()
			}
			return err
		}
		a.replace.Store(&f)
	}
}

// A proxy that loses the server during a commit says so in an answer of its own.
func TestACommitWhoseAnswerIsLostIsOpen(t *testing.T) {
	s, commits := answering(t)
	for n, lost := range []error{
		&driver.MySQLError{Number: 2013, Message: "Lost connection to MySQL server during query"},
		&driver.MySQLError{Number: 2003, Message: "Lost connection to backend server"},
		driver.ErrPktSync,
		driver.ErrMalformPkt,
	} {
		commits(func() error { return lost })
		_, err := s.Enqueue(t.Context(), newTasks(1, "q"))
		commits(func() error { return nil })
		if err == nil || errors.Is(err, store.ErrNotCommitted) {
			t.Errorf("%v: %v", lost, err)
		}
		if got := number(t, s, "select count(*) from tusk_task"); got != int64(n+1) {
			t.Fatalf("%v: %d tasks are stored, want %d", lost, got, n+1)
		}
	}
}

// The answer to a repeated claim is lost, and when it is repeated once more its tasks have ended.
func TestARepeatedClaimReturnsNothingThatHasEnded(t *testing.T) {
	s, commits := answering(t)
	enqueue(t, s, newTasks(2, "q")...)
	c := store.ClaimRequest{Worker: startWorker(t, s), Queues: []string{"q"}, Limit: 2, Token: store.NewToken()}
	tasks, err := s.Claim(t.Context(), c)
	if err != nil || len(tasks) != 2 {
		t.Fatal(tasks, err)
	}
	ended := false
	commits(func() error {
		if ended {
			return nil
		}
		ended = true
		finish(t, s, tasks)
		exec(t, s, "delete from tusk_lease")
		return driver.ErrInvalidConn
	})
	c.Again = true
	if again, err := s.Claim(t.Context(), c); err != nil || len(again) != 0 || !ended {
		t.Errorf("got %d tasks that have ended, %v", len(again), err)
	}
}
