package server_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server"
	"github.com/tuskqueue/tusk/server/fixture"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/mysql"
	"github.com/tuskqueue/tusk/store/mysql/mysqltest"
	"github.com/tuskqueue/tusk/store/postgres"
	"github.com/tuskqueue/tusk/store/postgres/pgtest"
	"github.com/tuskqueue/tusk/store/sqlite/sqlitefile"
)

func TestMain(m *testing.M) { pgtest.Main(mysqltest.Around{Tests: m}) }

// engines are the real databases, whose answers are not the memory engine's.
var engines = map[string]func(t *testing.T) store.Store{
	"sqlite": func(t *testing.T) store.Store {
		s, err := sqlitefile.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "tusk.db"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return migrated(t, s)
	},
	"postgres": func(t *testing.T) store.Store {
		s, err := postgres.Open(t.Context(), pgtest.DSN(t))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return migrated(t, s)
	},
	"mysql": func(t *testing.T) store.Store {
		s, err := mysql.Open(t.Context(), mysqltest.Database(t))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return migrated(t, s)
	},
}

func migrated(t *testing.T, s store.Store) store.Store {
	if m, ok := store.As[store.Migrator](s); ok {
		if _, err := m.Migrate(t.Context(), -1); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func newClient(t *testing.T, s store.Store) *tusk.Client {
	client, err := tusk.NewClient(s, &tusk.ClientConfig{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestRealDatabasesHaveAllPages(t *testing.T) {
	for name, open := range engines {
		t.Run(name, func(t *testing.T) { everything(t, newClient(t, open(t))) })
	}
}

func everything(t *testing.T, client *tusk.Client) {
	f, stop, err := fixture.Fill(t.Context(), client, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	s := startOn(t, client)
	for _, path := range pagesOf(f) {
		if a := s.do("GET", path, nil); a.status != 200 && path != "/tasks?state=nonsense" {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	var groups server.ErrorList
	s.do("GET", "/api/v1/errors?kind=charge_card", nil).want(t, 200, &groups)
	if len(groups.Errors) != 1 || groups.Errors[0].Dead != 4 || groups.Errors[0].Waiting != 8 {
		t.Fatalf("%+v", groups)
	}
	if err := client.PauseQueue(t.Context(), "default"); err != nil {
		t.Fatal(err)
	}
	var o server.Bulk
	s.do("POST", "/api/v1/errors/"+groups.Errors[0].Fingerprint+"/retry", nil).want(t, 202, &o)
	eventually(t, func() bool {
		s.do("GET", "/api/v1/bulk/"+o.ID, nil).want(t, 200, &o)
		return o.State == "done"
	})
	if o.Changed != 12 {
		t.Errorf("%+v", o)
	}
	s.do("POST", "/api/v1/tasks", object{"kind": "k", "queue": "pulled"}, "Idempotency-Key", "x").want(t, 201, nil)
	s.do("POST", "/api/v1/tasks", object{"kind": "k", "queue": "pulled"}, "Idempotency-Key", "x").want(t, 201, nil)
	got := s.lease(object{"queues": []string{"pulled"}, "wait": "10s", "max": 10})
	if len(got) != 1 {
		t.Fatal(got)
	}
	s.do("POST", "/api/v1/lease/complete", object{"lease_id": got[0].LeaseID}).want(t, 200, nil)
	s.do("POST", "/api/v1/lease/complete", object{"lease_id": got[0].LeaseID}).want(t, 200, nil)
	s.do("POST", "/api/v1/lease/fail", object{"lease_id": got[0].LeaseID, "error": "x"}).problem(t, 409, "lease_lost")
}

// TestLargeTables tells how long pages take: TUSK_LARGE=1000000 go test -v -run LargeTables ./server
func TestLargeTables(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv("TUSK_LARGE"))
	if err != nil {
		t.Skip("fills a large table: set TUSK_LARGE to the number of finished tasks")
	}
	dsn := pgtest.DSN(t)
	engine, err := postgres.Open(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { engine.Close() })
	s := migrated(t, engine)
	client := newClient(t, s)
	worker := tusk.NewID()
	if _, err := s.Extend(t.Context(), store.Beat{Worker: store.Worker{ID: worker, Host: "h"}, TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	batch := func(size int, o tusk.Options) {
		tasks := make([]tusk.NewTask, size)
		for i := range tasks {
			own := o
			own.Tenant, own.Tags = fmt.Sprintf("tenant-%d", i%50), []string{fmt.Sprintf("tag-%d", i%7)}
			tasks[i] = tusk.NewTask{Args: tusk.RawArgs{Name: fmt.Sprintf("kind-%d", i%5), JSON: fmt.Appendf(nil, `{"n":%d}`, i)}, Options: &own}
		}
		if _, err := client.EnqueueMany(t.Context(), tasks); err != nil {
			t.Fatal(err)
		}
	}
	var failed tusk.ID
	for done := 0; done < n; done += 10000 {
		batch(10000, tusk.Options{Queue: fmt.Sprintf("q%d", done/10000%8)})
		for left := 10000; left > 0; {
			claimed, err := s.Claim(t.Context(), store.ClaimRequest{Worker: worker, Queues: []string{fmt.Sprintf("q%d", done/10000%8)}, Limit: 2000, Token: store.NewToken()})
			if err != nil || len(claimed) == 0 {
				t.Fatal(len(claimed), err)
			}
			outcomes := make([]store.Outcome, len(claimed))
			for i := range claimed {
				outcomes[i] = store.Outcome{Task: &claimed[i], State: store.Completed, Attempt: 1, Ran: time.Millisecond}
				if i%50 == 0 {
					failed = claimed[i].ID
					outcomes[i].State, outcomes[i].Error, outcomes[i].Fingerprint, outcomes[i].Reason = store.Discarded, fmt.Sprintf("error %d", i), fmt.Sprintf("f%d", i/50%9), "gave up"
				}
			}
			if _, err := s.Finish(t.Context(), outcomes); err != nil {
				t.Fatal(err)
			}
			left -= len(claimed)
		}
	}
	for waiting := 0; waiting < n/5; waiting += 10000 {
		batch(10000, tusk.Options{Queue: fmt.Sprintf("w%d", waiting/10000%4)})
	}
	analyze(t, dsn)
	at := startOn(t, client)
	for _, path := range []string{"/", "/?range=24h", "/queues", "/tasks", "/tasks?state=discarded", "/tasks?state=available&queue=w1", "/tasks?state=retryable", "/tasks?kind=kind-3",
		"/tasks?tenant=tenant-7", "/tasks?tag=tag-3", "/tasks?tag=none", "/tasks?kind=none", "/tasks?tenant=none", "/tasks?queue=none", "/tasks?key=none", "/tasks?fingerprint=f3", "/tasks?fingerprint=none",
		"/tasks?from=1h", "/tasks?state=completed&queue=q3&kind=kind-1", "/tasks?state=running", "/tasks?until=2020-01-01", "/tasks/" + failed.String(), "/errors", "/errors?window=all", "/workers", "/schedules", "/bulk", "/audit", "/api/v1/stats", "/api/v1/tasks?limit=1000"} {
		at.do("GET", path, nil)
		begun := time.Now()
		a := at.do("GET", path, nil)
		t.Logf("%8.1f ms  %d  %s", float64(time.Since(begun).Microseconds())/1000, a.status, path)
		if a.status != 200 {
			t.Errorf("%s: %d", path, a.status)
		}
	}
}

// analyze does what autovacuum would have done after a while.
func analyze(t *testing.T, dsn string) {
	c, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	if _, err := c.Exec(t.Context(), "vacuum analyze"); err != nil {
		t.Fatal(err)
	}
}
