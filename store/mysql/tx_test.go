package mysql_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"net/url"
	"strings"
	"testing"

	driver "github.com/go-sql-driver/mysql"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/mysql"
	"github.com/tuskqueue/tusk/store/mysql/mysqltest"
	"github.com/tuskqueue/tusk/store/storetest"
)

// plain opens a pool as a program does that knows nothing of Tusk: one prepared statement at a time, at the server's
// default isolation.
func plain(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db := sql.OpenDB(connector(t, dsn, nil))
	t.Cleanup(func() { db.Close() })
	return db
}

// connector makes connections whose sessions begin with settings.
func connector(t testing.TB, dsn string, settings map[string]string) sqldriver.Connector {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	config := driver.NewConfig()
	config.User, config.Net, config.Addr, config.DBName = u.User.Username(), "tcp", u.Host, strings.Trim(u.Path, "/")
	config.Passwd, _ = u.User.Password()
	config.Params = settings
	connector, err := driver.NewConnector(config)
	if err != nil {
		t.Fatal(err)
	}
	return connector
}

// newOn makes an engine on a user's pool whose sessions begin with settings.
func newOn(t testing.TB, dsn string, settings map[string]string) *mysql.Store {
	t.Helper()
	db := sql.OpenDB(connector(t, dsn, settings))
	t.Cleanup(func() { db.Close() })
	s, err := mysql.New(context.Background(), db, mysql.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// odd holds settings of a user's pool that must not matter.
var odd = map[string]string{
	"sql_mode": "'ANSI,NO_BACKSLASH_ESCAPES,HIGH_NOT_PRECEDENCE,ONLY_FULL_GROUP_BY,NO_AUTO_VALUE_ON_ZERO," +
		"NO_UNSIGNED_SUBTRACTION,STRICT_TRANS_TABLES'",
	"time_zone": "'+05:30'",
}

func TestAPoolOfTheUsersKeepsTheContract(t *testing.T) {
	if testing.Short() {
		t.Skip("runs all clauses again")
	}
	own := engine
	own.OneWriter = true // at REPEATABLE READ, a transaction also locks what others would insert
	own.New = func(t testing.TB) func() store.Store {
		dsn := mysqltest.Database(t)
		made := newOn(t, dsn, odd)
		if _, err := made.Migrate(t.Context(), -1); err != nil {
			t.Fatal(err)
		}
		return func() store.Store { return newOn(t, dsn, odd) }
	}
	storetest.Run(t, own)
}

func TestATransactionOfTheUsersHoldsTasksAndFinishes(t *testing.T) {
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead} {
		t.Run(level.String(), func(t *testing.T) { inATransaction(t, level) })
	}
}

func inATransaction(t *testing.T, level sql.IsolationLevel) {
	dsn := mysqltest.Database(t)
	migrate(t, dsn)
	s, db := open(t, dsn), plain(t, dsn)
	ctx := t.Context()
	begin := func() (*sql.Tx, store.Tx) {
		tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: level})
		if err != nil {
			t.Fatal(err)
		}
		u, err := s.Tx(tx)
		if err != nil {
			t.Fatal(err)
		}
		return tx, u
	}
	w := startWorker(t, s)
	for _, commit := range []bool{false, true} {
		tx, u := begin()
		tasks := newTasks(3, "q")
		tasks[1].Key, tasks[2].Tags, tasks[2].Settings = "k", []string{"a b"}, []byte{0}
		if results, err := u.Enqueue(ctx, tasks); err != nil || results[1].Result != store.Added {
			t.Fatal(results, err)
		}
		if got := claim(t, s, w, 10); len(got) != 0 {
			t.Fatal("claimed before the commit")
		}
		if err := end(tx, commit); err != nil {
			t.Fatal(err)
		}
	}
	tasks := claim(t, s, w, 10)
	if len(tasks) != 3 {
		t.Fatal(len(tasks))
	}
	for _, commit := range []bool{false, true} {
		tx, u := begin()
		if lost, err := u.Finish(ctx, completed(tasks[:2])); err != nil || len(lost) > 0 {
			t.Fatal(lost, err)
		}
		if lost, err := s.Finish(ctx, completed(tasks[2:])); err != nil || commit != (len(lost) == 1) {
			t.Fatal("a finish beside an open transaction:", lost, err)
		}
		if err := end(tx, commit); err != nil {
			t.Fatal(err)
		}
	}
	if lost, err := s.Finish(ctx, completed(tasks)); err != nil || len(lost) != 3 {
		t.Fatal(lost, err)
	}
	if list, err := s.List(ctx, store.Filter{States: []store.State{store.Completed}}); err != nil || len(list) != 3 {
		t.Fatal(list, err)
	}
}

func end(tx *sql.Tx, commit bool) error {
	if commit {
		return tx.Commit()
	}
	return tx.Rollback()
}

// begin begins a user's transaction, which is rolled back when the test ends, and returns it with the engine in it.
func begin(t *testing.T, s *mysql.Store) (*sql.Tx, store.Tx) {
	t.Helper()
	tx, err := s.DB().Begin()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tx.Rollback() })
	u, err := s.Tx(tx)
	if err != nil {
		t.Fatal(err)
	}
	return tx, u
}

func TestAnErrorLeavesTheUsersTransactionAsItWas(t *testing.T) {
	s := fresh(t)
	ctx := context.Background()
	tx, u := begin(t, s)
	if _, err := u.Enqueue(ctx, newTasks(1, "q")); err != nil {
		t.Fatal(err)
	}
	bad := newTasks(2, "q")
	bad[1].Kind = strings.Repeat("x", 300)
	if _, err := u.Enqueue(ctx, bad); err == nil {
		t.Fatal("a name that has no room was stored")
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if n := number(t, s, "select count(*) from tusk_task"); n != 1 {
		t.Errorf("%d tasks", n)
	}
}

func TestOnlyTransactionsOfDatabaseSQLWillDo(t *testing.T) {
	s := fresh(t)
	for _, tx := range []any{nil, (*sql.Tx)(nil), "tx"} {
		if _, err := s.Tx(tx); !errors.Is(err, store.ErrUnsupported) || !strings.Contains(err.Error(), "*sql.Tx") {
			t.Error(err)
		}
	}
}

// TestNothingIsEnqueuedInATransactionThatIsOver makes the user go on after the server has chosen the transaction to end
// a deadlock.
func TestNothingIsEnqueuedInATransactionThatIsOver(t *testing.T) {
	s := fresh(t)
	exec(t, s, "create table mine (id int primary key, v int)")
	exec(t, s, "insert into mine values (1, 0), (2, 0)")
	begin := func() *sql.Tx {
		tx, err := s.DB().Begin()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { tx.Rollback() })
		return tx
	}
	update := func(tx *sql.Tx, id int) error {
		_, err := tx.Exec("update mine set v = v + 1 where id = ?", id)
		return err
	}
	other, tx := begin(), begin()
	// The transaction that has written less loses.
	if _, err := other.Exec("insert into mine values (3, 0), (4, 0)"); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(update(other, 1), update(tx, 2)); err != nil {
		t.Fatal(err)
	}
	won := make(chan error, 1)
	go func() { won <- update(other, 2) }()
	if err := update(tx, 1); err == nil {
		t.Fatal("no deadlock")
	}
	in, err := s.Tx(tx)
	if err != nil {
		t.Fatal(err)
	}
	_, err = in.Enqueue(t.Context(), []store.NewTask{{ID: storetest.NewID(), Kind: "k", Queue: "q"}})
	if !errors.Is(err, store.ErrNotCommitted) {
		t.Error(err)
	}
	if _, err := tx.Exec("insert into mine values (6, 0)"); !errors.Is(err, sql.ErrTxDone) {
		t.Error("a statement after that:", err)
	}
	if err := <-won; err != nil {
		t.Error(err)
	}
	if tasks, err := s.List(t.Context(), store.Filter{}); err != nil || len(tasks) != 0 {
		t.Errorf("stored all the same: %+v, %v", tasks, err)
	}
}

// Another process has the same places. In a user's transaction, the call is repeated with others.
func TestAPlaceThatAnotherProcessHasIsNotUsedInATransaction(t *testing.T) {
	s := fresh(t)
	exec(t, s, `create trigger taken before insert on tusk_task for each row
		if @taken is null then
			set @taken = 1;
			signal sqlstate '23000' set mysql_errno = 1062, message_text = 'Duplicate entry';
		end if`)
	tx, u := begin(t, s)
	if _, err := u.Enqueue(t.Context(), newTasks(2, "q")); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if n := number(t, s, "select count(*) from tusk_task"); n != 2 {
		t.Errorf("%d tasks", n)
	}
}
