package postgres_test

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
	"github.com/tuskqueue/tusk/store/postgres/pgtest"
)

// pair starts a primary and an asynchronous standby, and returns a DSN that names both.
func pair(t *testing.T) (primary, standby *pgtest.Server, dsn string) {
	t.Helper()
	if os.Getenv("TUSK_TEST_POSTGRES") != "" {
		t.Skip("needs servers of its own")
	}
	var err error
	if primary, err = pgtest.Start("fsync=off"); err != nil {
		pgtest.DSN(t) // fails or skips without a server
		t.Fatal(err)
	}
	t.Cleanup(primary.Stop)
	if standby, err = primary.Standby(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(standby.Stop)
	a, _ := url.Parse(primary.DSN)
	b, _ := url.Parse(standby.DSN)
	return primary, standby,
		fmt.Sprintf("postgres://postgres@%s,%s/postgres?sslmode=disable&target_session_attrs=read-write", a.Host, b.Host)
}

// The standby lacks the last moment, in which a queue got its first task. Tasks that it acknowledges as the primary
// are claimed, whichever process looks.
func TestAfterAFailoverNewTasksAreFoundInQueuesThatItLost(t *testing.T) {
	primary, standby, dsn := pair(t)
	ctx := t.Context()
	s, err := postgres.Open(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Migrate(ctx, -1); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Enqueue(ctx, newTasks(1, "old")); err != nil {
		t.Fatal(err)
	}
	_, there := open(t, standby.DSN, false)
	eventually(t, "the standby follows", func() bool {
		var n int
		return there.QueryRow(ctx, "select count(*) from tusk.lane where queue = 'old'").Scan(&n) == nil && n == 1
	})
	for _, text := range []string{"alter system set primary_conninfo = ''", "select pg_reload_conf()"} {
		if err := standby.Exec(ctx, text); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the link is broken", func() bool {
		var n int
		return there.QueryRow(ctx, "select count(*) from pg_stat_wal_receiver").Scan(&n) == nil && n == 0
	})
	if _, err := s.Enqueue(ctx, newTasks(1, "new")); err != nil {
		t.Fatal(err)
	}
	if err := primary.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := standby.Exec(ctx, "select pg_promote()"); err != nil {
		t.Fatal(err)
	}
	for queue, n := range map[string]int{"old": 11, "new": 10} {
		eventually(t, "the new primary takes tasks",
			func() bool { _, err = s.Enqueue(ctx, newTasks(10, queue)); return err == nil })
		other, _ := open(t, standby.DSN, false)
		got, err := other.Claim(ctx, store.ClaimRequest{Worker: startWorker(t, other), Queues: []string{queue}, Limit: 100,
			Token: store.NewToken()})
		if err != nil || len(got) != n {
			t.Errorf("queue %s: %d of %d tasks that the new primary acknowledged are claimed: %v", queue, len(got), n, err)
		}
	}
}

func TestMaintenanceNamesLanesThatLostTheirName(t *testing.T) {
	s, pool := fresh(t)
	ctx := t.Context()
	for _, queue := range []string{"q", "unheard"} {
		if _, err := s.Enqueue(ctx, newTasks(2, queue)); err != nil {
			t.Fatal(err)
		}
	}
	late := newTasks(1, "tuned")
	late[0].Delay = time.Hour
	if _, err := s.Enqueue(ctx, late); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.PutRecord(ctx, store.PutRecord{Record: store.Record{Kind: "queue", Name: "tuned",
		Body: []byte("{}")}}); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(ctx, "delete from tusk.lane"); err != nil {
		t.Fatal(err)
	}
	w, term := startWorker(t, s), lead(t, s)
	err := s.Maintain(ctx, term)
	if err == nil || !strings.Contains(err.Error(), "1 lanes hold tasks and have no name") {
		t.Errorf("maintain: %v", err)
	}
	if n := number(t, pool, "select count(*) from tusk.lane where queue in ('q', 'tuned')"); n != 2 {
		t.Errorf("%d of 2 lanes were named", n)
	}
	got, err := s.Claim(ctx, store.ClaimRequest{Worker: w, Queues: []string{"q"}, Limit: 10, Token: store.NewToken()})
	if err != nil || len(got) != 2 {
		t.Error(len(got), err)
	}
}

// Another server, with a restored dump, has taken over the address.
func TestAServerThatTookTheAddressOfAnotherIsNoticed(t *testing.T) {
	s, pool := fresh(t)
	ctx := t.Context()
	w := startWorker(t, s)
	goRound(t, s, w, 1)
	if _, err := pool.Exec(ctx, "update tusk.server set system_identifier = system_identifier + 1"); err != nil {
		t.Fatal(err)
	}
	pool.Reset() // as when the server is gone
	_, err := s.Enqueue(ctx, newTasks(1, "q"))
	if !errors.Is(err, store.ErrMoved) || !errors.Is(err, store.ErrNotCommitted) {
		t.Errorf("enqueue: %v", err)
	}
	if _, err = s.Claim(ctx, store.ClaimRequest{Worker: w, Queues: []string{"q"}, Limit: 1,
		Token: store.NewToken()}); !errors.Is(err, store.ErrMoved) {
		t.Errorf("claim: %v", err)
	}
}
