package server_test

import (
	"log/slog"
	"testing"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server"
	"github.com/tuskqueue/tusk/server/fixture"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/enginetest"
)

func TestMain(m *testing.M) { enginetest.Main(m) }

// engines are the real databases, which may answer differently from the memory engine.
var engines = enginetest.SQL

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
