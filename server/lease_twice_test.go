package server_test

import (
	"slices"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server"
)

func TestALeaseThatComesTwiceInABatchIsEndedByTheFirst(t *testing.T) {
	for name, open := range engines {
		t.Run(name, func(t *testing.T) {
			s := startOn(t, newClient(t, open(t)))
			s.enqueue(object{"kind": "k"})
			got := s.lease(object{"queues": []string{"default"}, "wait": "10s"})[0]
			complete := object{"action": "complete", "lease_id": got.LeaseID, "output": 7}
			var out server.LeaseResults
			s.do("POST", "/api/v1/lease/batch", object{"items": []object{complete, complete,
				{"action": "fail", "lease_id": got.LeaseID, "error": "no"}}}).want(t, 200, &out)
			var codes []string
			for _, r := range out.Results {
				codes = append(codes, r.Code)
			}
			if !slices.Equal(codes, []string{"", "", "lease_lost"}) {
				t.Errorf("%q", codes)
			}
			s.do("POST", "/api/v1/lease/complete", object{"lease_id": got.LeaseID, "output": 7}).want(t, 200, nil)
			if d := s.task(got.ID); d.State != "completed" || string(d.Output) != "7" || len(d.Attempts) != 1 {
				t.Errorf("%+v", d)
			}
		})
	}
}

func TestATaskIsReleasedForAtMostTheTimeThatItCouldBeDelayed(t *testing.T) {
	s := start(t)
	id := s.enqueue(object{"kind": "k"})
	got := s.lease(object{"queues": []string{"default"}, "wait": "10s"})[0]
	s.do("POST", "/api/v1/lease/release", object{"lease_id": got.LeaseID, "delay": 9e9}).want(t, 200, nil)
	if in := time.Until(s.task(id).RunAt); in > tusk.MaxAhead || in < tusk.MaxAhead-time.Hour {
		t.Errorf("it runs again in %v", in)
	}
}
