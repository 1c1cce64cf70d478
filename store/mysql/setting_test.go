package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/mysql"
	"github.com/tuskqueue/tusk/store/mysql/mysqltest"
)

// with returns a URL with one more parameter.
func with(t *testing.T, dsn, name, value string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	v := u.Query()
	v.Set(name, value)
	u.RawQuery = v.Encode()
	return u.String()
}

func TestSessionsInWhichStatementsMeanSomethingElseAreRefused(t *testing.T) {
	dsn := mysqltest.Database(t)
	type setting struct{ name, value, says string }
	settings := []setting{
		{"autocommit", "0", "autocommit=1"},
		{"sql_select_limit", "1000", "sql_select_limit=DEFAULT"},
	}
	if mysql.IsMariaDB(t, open(t, dsn)) { // MySQL has neither mode
		settings = append(settings,
			setting{"sql_mode", "'EMPTY_STRING_IS_NULL,STRICT_TRANS_TABLES'", "sql_mode=%27STRICT_TRANS_TABLES%27"},
			setting{"sql_mode", "'ORACLE'", "sql_mode=%27STRICT_TRANS_TABLES%27"})
	}
	for _, test := range settings {
		db := sql.OpenDB(connector(t, dsn, map[string]string{test.name: test.value}))
		defer db.Close()
		s, err := mysql.New(t.Context(), db, mysql.Options{})
		if !errors.Is(err, store.ErrUnsupported) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s=%s: %v, want %q in it", test.name, test.value, err, test.says)
		}
		if err == nil {
			s.Close()
		}
	}
	s, err := mysql.Open(t.Context(), with(t, dsn, "autocommit", "0"))
	if err != nil {
		t.Fatalf("a pool of our own sets it itself: %v", err)
	}
	s.Close()
}

func TestWhatWeakensSessionsIsSaid(t *testing.T) {
	dsn := mysqltest.Database(t)
	migrate(t, dsn)
	sane, err := open(t, dsn).Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	limit := "max_execution_time" // in milliseconds
	if mysql.IsMariaDB(t, open(t, dsn)) {
		limit = "max_statement_time"
	}
	for _, test := range []struct{ name, value, says string }{
		{"sql_mode", "''", "sql_mode=%27STRICT_TRANS_TABLES%27"},
		{limit, "90", limit + "=0"},
	} {
		all, err := newOn(t, dsn, map[string]string{test.name: test.value}).Check(t.Context())
		if err != nil || len(all) != len(sane)+1 || !strings.Contains(strings.Join(all, "\n"), test.says) {
			t.Errorf("%s=%s: %v, %q, want %q in it", test.name, test.value, err, all, test.says)
		}
	}
	if all, err := newOn(t, dsn, odd).Check(t.Context()); err != nil || len(all) != len(sane) {
		t.Errorf("%v, %q", err, all)
	}
}

// Examine leaves the sessions of a user's pool as it found them.
func TestExamineLeavesTheTimeZoneOfASession(t *testing.T) {
	dsn := mysqltest.Database(t)
	migrate(t, dsn)
	s := newOn(t, dsn, odd)
	s.DB().SetMaxOpenConns(1)
	if _, err := s.Examine(t.Context()); err != nil {
		t.Fatal(err)
	}
	zone := ""
	if err := s.DB().QueryRow("select @@session.time_zone").Scan(&zone); err != nil || zone != "+05:30" {
		t.Errorf("the time zone is %s, %v", zone, err)
	}
}

// A time limit of the server ends a procedure that has committed.
func TestACommitThatTookTooLongForTheServerIsOpen(t *testing.T) {
	dsn := mysqltest.Database(t)
	migrate(t, dsn)
	s := open(t, dsn)
	if !mysql.IsMariaDB(t, s) {
		t.Skip("MySQL limits the time of no procedure")
	}
	limited := open(t, with(t, dsn, "max_statement_time", "1"))
	w := startWorker(t, s)
	enqueue(t, s, newTasks(2, "q")...)
	tasks := claim(t, limited, w, 1)
	if len(tasks) != 1 {
		t.Fatal(tasks)
	}
	slow(t, s, "tusk_finish")
	if _, err := limited.Finish(t.Context(), completed(tasks)); err == nil || errors.Is(err, store.ErrNotCommitted) {
		t.Errorf("finish: %v", err)
	}
	if n := number(t, s, "select count(*) from tusk_task where state = 6"); n != 1 {
		t.Errorf("%d tasks are completed", n)
	}
	slow(t, s, "tusk_claim")
	_, err := limited.Claim(t.Context(), store.ClaimRequest{Worker: w, Queues: []string{"q"}, Limit: 1,
		Token: store.NewToken()})
	if err == nil || errors.Is(err, store.ErrNotCommitted) {
		t.Errorf("claim: %v", err)
	}
	if n := number(t, s, "select count(*) from tusk_ready"); n != 0 {
		t.Errorf("%d rows of available tasks", n)
	}
}

// slow makes a procedure take three more seconds after its commit.
func slow(t *testing.T, s *mysql.Store, procedure string) {
	t.Helper()
	var text string
	var rest [5]sql.RawBytes
	rows, err := s.DB().QueryContext(context.Background(), "show create procedure "+s.Procedure(procedure))
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	if !rows.Next() || rows.Scan(&rest[0], &rest[1], &text, &rest[2], &rest[3], &rest[4]) != nil {
		t.Fatal("the procedure cannot be read")
	}
	rows.Close()
	at := strings.LastIndex(text, "commit;")
	exec(t, s, "drop procedure "+s.Procedure(procedure))
	const long = "set @long = (select count(*) from information_schema.columns a, information_schema.columns b, " +
		"information_schema.columns c); "
	exec(t, s, text[:at]+"commit; "+long+text[at+len("commit;"):])
}

func TestAServersLimitOfStatementsIsLifted(t *testing.T) {
	dsn := mysqltest.Start(t, "--max-statement-time=20").Database(t)
	for text, want := range map[string]float64{dsn: 0, with(t, dsn, "max_statement_time", "7"): 7} {
		var limit float64
		err := open(t, text).DB().QueryRow("select @@session.max_statement_time").Scan(&limit)
		if err != nil || limit != want {
			t.Errorf("%s: %v s, %v", text, limit, err)
		}
	}
}
