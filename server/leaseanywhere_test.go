package server_test

import (
	"testing"
	"time"

	"github.com/tuskqueue/tusk/server"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/enginetest"
	"github.com/tuskqueue/tusk/store/ledgers"
	"github.com/tuskqueue/tusk/store/memory"
	"github.com/tuskqueue/tusk/store/postgres/pgtest"
)

// anywhere are the engines, and a queue of several ledgers.
func anywhere(t *testing.T, test func(t *testing.T, s store.Store)) {
	t.Run("memory", func(t *testing.T) { test(t, memory.New()) })
	for name, open := range engines {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
	t.Run("couchbase", func(t *testing.T) { test(t, enginetest.Couchbase(t)) })
	t.Run("ledgers", func(t *testing.T) {
		s, err := ledgers.Open(t.Context(), pgtest.DSN(t))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		if err := s.Divide(3); err != nil {
			t.Fatal(err)
		}
		test(t, migrated(t, s))
	})
}

func (s *site) extend(id string, body object) (r server.LeaseResult) {
	s.t.Helper()
	body["lease_id"] = id
	s.do("POST", "/api/v1/lease/extend", body).want(s.t, 200, &r)
	return r
}

// Two servers of one database, behind a load balancer: whatever one lent, the other extends, notes and ends.
func TestAnyServerExtendsAndEndsALease(t *testing.T) {
	anywhere(t, func(t *testing.T, db store.Store) {
		s, other := startOn(t, newClient(t, db)), startOn(t, newClient(t, db))
		for range 3 {
			s.do("POST", "/api/v1/tasks", object{"kind": "k"}).want(t, 201, nil)
		}
		got := s.lease(object{"queues": []string{"default"}, "max": 3, "wait": "10s", "lease": "2s"})
		if len(got) == 1 { // they may be in several ledgers
			got = append(got, s.lease(object{"queues": []string{"default"}, "max": 2, "wait": "10s", "lease": "2s"})...)
		}
		if len(got) < 2 {
			t.Fatalf("%+v", got)
		}
		id, lost := got[0].LeaseID, got[len(got)-1].LeaseID
		r := other.extend(id, object{"lease": "2m", "progress": object{"percent": 40}, "logs": []string{"a line"}})
		if left := time.Until(r.LeaseUntil); left < time.Minute || left > 2*time.Minute {
			t.Errorf("extended until %v", r.LeaseUntil)
		}
		eventually(t, func() bool {
			d := s.task(got[0].ID)
			return d.Progress != nil && d.Progress.Percent == 40 && len(d.Logs) == 1
		})
		// The lender ends what nobody extended, and leaves the other alone.
		eventually(t, func() bool { return s.task(got[len(got)-1].ID).State == "retryable" })
		other.do("POST", "/api/v1/lease/extend", object{"lease_id": lost}).problem(t, 409, "lease_lost")
		if d := s.task(got[0].ID); d.State != "running" {
			t.Fatalf("the extended task: %+v", d)
		}
		var e server.Edited
		if s.do("POST", "/api/v1/tasks/"+got[0].ID+"/cancel", nil).want(t, 200, &e); e.Result != "requested" {
			t.Fatal(e)
		}
		if r := other.extend(id, object{"lease": "1m", "logs": []string{"another"}}); !r.CancelRequested {
			t.Errorf("%+v", r)
		}
		other.do("POST", "/api/v1/lease/complete", object{"lease_id": id}).want(t, 200, nil)
		if d := s.task(got[0].ID); d.State != "completed" || d.Progress == nil || d.Progress.Percent != 40 ||
			len(d.Logs) != 2 {
			t.Errorf("%+v", d)
		}
		other.do("POST", "/api/v1/lease/extend", object{"lease_id": id}).problem(t, 409, "lease_lost")
	})
}

// The newest progress stays, wherever it was reported.
func TestProgressDoesNotGoBackWhenAnotherServerEndsTheTask(t *testing.T) {
	client := newClient(t, memory.New())
	s, other := startOn(t, client), startOn(t, client)
	s.do("POST", "/api/v1/tasks", object{"kind": "k"}).want(t, 201, nil)
	got := s.lease(object{"queues": []string{"default"}, "wait": "10s"})[0]
	progress := func(percent float64) func() bool {
		return func() bool { d := s.task(got.ID); return d.Progress != nil && d.Progress.Percent == percent }
	}
	s.extend(got.LeaseID, object{"progress": object{"percent": 40}})
	eventually(t, progress(40))
	other.extend(got.LeaseID, object{"progress": object{"percent": 80}})
	eventually(t, progress(80))
	s.do("POST", "/api/v1/lease/complete", object{"lease_id": got.LeaseID}).want(t, 200, nil)
	if !progress(80)() {
		t.Errorf("%+v", s.task(got.ID).Progress)
	}
}
