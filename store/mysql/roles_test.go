package mysql_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/mysql"
	"github.com/tuskqueue/tusk/store/mysql/mysqltest"
)

// asRole opens the database as a user with one role.
func asRole(t *testing.T, admin *mysql.Store, dsn, role string) *mysql.Store {
	t.Helper()
	user := "u" + role
	exec(t, admin, "create user "+user+" identified by 'p'")
	t.Cleanup(func() { exec(t, admin, "drop user "+user) })
	exec(t, admin, "grant "+role+" to "+user)
	if mysql.IsMariaDB(t, admin) {
		exec(t, admin, "set default role "+role+" for "+user)
	} else {
		exec(t, admin, "set default role "+role+" to "+user)
	}
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(user, "p")
	return open(t, u.String())
}

func TestRolesHaveTheRightsThatTheyNeed(t *testing.T) {
	dsn := mysqltest.Database(t)
	migrate(t, dsn)
	admin := open(t, dsn)
	if _, err := admin.Roles(t.Context(), "rt", true); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { exec(t, admin, "drop role rt_migrate, rt_work, rt_read") })
	exec(t, admin, "create table mine (a int)")
	s := asRole(t, admin, dsn, "rt_work")
	if _, err := s.Check(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := s.Enqueue(t.Context(), newTasks(5, "q")); err != nil {
		t.Fatal(err)
	}
	tasks, err := s.Claim(t.Context(), store.ClaimRequest{Worker: startWorker(t, s), Queues: []string{"q"}, Limit: 5,
		Token: store.NewToken()})
	if err != nil || len(tasks) != 5 {
		t.Fatal(len(tasks), err)
	}
	if lost, err := s.Finish(t.Context(), []store.Outcome{{Task: &tasks[0], State: store.Completed},
		{Task: &tasks[1], State: store.Retryable, Attempt: 1, Error: "e", Fingerprint: "f"}}); err != nil || len(lost) > 0 {
		t.Error(lost, err)
	}
	l, err := s.Lead(t.Context(), store.Candidate{ID: store.ID{1}, TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Maintain(t.Context(), l.Term); err != nil {
		t.Error(err)
	}
	if _, err := s.Prune(t.Context(), l.Term, store.Retention{Completed: time.Microsecond}, 10); err != nil {
		t.Error(err)
	}
	reader := asRole(t, admin, dsn, "rt_read")
	if n := number(t, reader, "select count(*) from tusk_task"); n == 0 {
		t.Error("the role that reads sees no tasks")
	}
	for _, of := range []struct {
		s    *mysql.Store
		text string
	}{
		{s, "select * from mine"}, {s, "create table more (a int)"}, {s, "delete from tusk_migration"},
		{s, "drop procedure " + s.Procedure("tusk_claim")},
		{reader, "delete from tusk_task"}, {reader, "insert into tusk_delta (at, body) values (1, '')"},
		{reader, "select * from mine"},
	} {
		if _, err := of.s.DB().Exec(of.text); err == nil || !strings.Contains(err.Error(), "denied") {
			t.Errorf("%s: %v", of.text, err)
		}
	}
}
