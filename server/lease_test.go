package server_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server"
	"github.com/tuskqueue/tusk/server/access"
)

func (s *site) lease(body object) []server.LeasedTask {
	s.t.Helper()
	var out server.LeasedTasks
	s.do("POST", "/api/v1/lease", body).want(s.t, 200, &out)
	return out.Tasks
}

func (s *site) task(id string) server.TaskDetail {
	s.t.Helper()
	var d server.TaskDetail
	s.do("GET", "/api/v1/tasks/"+id, nil).want(s.t, 200, &d)
	return d
}

func TestAWorkerOverHTTPLeasesAndEndsTasks(t *testing.T) {
	s := start(t)
	for range 4 {
		s.do("POST", "/api/v1/tasks", object{"kind": "k", "args": object{"n": 1}}).want(t, 201, nil)
	}
	got := s.lease(object{"queues": []string{"default"}, "max": 10, "wait": "5s"})
	if len(got) != 4 || got[0].Attempt != 1 || string(got[0].Args) != `{"n":1}` {
		t.Fatalf("%+v", got)
	}
	var r server.LeaseResult
	s.do("POST", "/api/v1/lease/complete", object{"lease_id": got[0].LeaseID, "output": object{"ok": true}}).want(t, 200,
		&r)
	// The same request again.
	s.do("POST", "/api/v1/lease/complete", object{"lease_id": got[0].LeaseID, "output": object{"ok": true}}).want(t, 200,
		&r)
	s.do("POST", "/api/v1/lease/fail", object{"lease_id": got[0].LeaseID, "error": "no"}).problem(t, 409, "lease_lost")
	s.do("POST", "/api/v1/lease/extend", object{"lease_id": got[0].LeaseID}).problem(t, 409, "lease_lost")
	if d := s.task(got[0].ID); d.State != "completed" || string(d.Output) != `{"ok":true}` {
		t.Errorf("%+v", d)
	}
	s.do("POST", "/api/v1/lease/fail", object{"lease_id": got[1].LeaseID, "error": "boom 17", "trace": "at x",
		"retry_in": "1h"}).want(t, 200, &r)
	if d := s.task(got[1].ID); d.State != "retryable" || d.Attempts[0].Error != "boom 17" ||
		d.Attempts[0].Trace != "at x" {
		t.Errorf("%+v", d)
	}
	s.do("POST", "/api/v1/lease/extend", object{"lease_id": got[2].LeaseID, "lease": "2m",
		"progress": object{"percent": 40, "message": "x"}, "logs": []string{"a line"}}).want(t, 200, &r)
	if time.Until(r.LeaseUntil) < time.Minute {
		t.Error(r)
	}
	eventually(t, func() bool {
		d := s.task(got[2].ID)
		return d.Progress != nil && d.Progress.Percent == 40 && len(d.Logs) == 1
	})
	var batch server.LeaseResults
	s.do("POST", "/api/v1/lease/batch", object{"items": []object{
		{"action": "fail", "lease_id": got[2].LeaseID, "error": "for good", "discard": true},
		{"action": "release", "lease_id": got[3].LeaseID, "delay": "1h"},
		{"action": "complete", "lease_id": got[1].LeaseID},
		{"action": "complete", "lease_id": "nonsense"},
		{"action": "explode", "lease_id": got[3].LeaseID},
	}}).want(t, 200, &batch)
	for i, want := range []string{"", "", "lease_lost", "invalid_id", "invalid_action"} {
		if b := batch.Results[i]; b.Code != want || b.OK != (want == "") {
			t.Errorf("item %d: %+v", i, b)
		}
	}
	if d := s.task(got[2].ID); d.State != "discarded" {
		t.Error(d.State)
	}
	if d := s.task(got[3].ID); d.State != "scheduled" || d.Attempt != 0 {
		t.Error(d.State, d.Attempt)
	}
}

func TestALeaseThatRunsOutIsAFailedAttempt(t *testing.T) {
	s := start(t)
	s.do("POST", "/api/v1/tasks", object{"kind": "k"}).want(t, 201, nil)
	got := s.lease(object{"queues": []string{"default"}, "lease": "1s", "wait": "5s"})
	eventually(t, func() bool { return s.task(got[0].ID).State == "retryable" })
	s.do("POST", "/api/v1/lease/complete", object{"lease_id": got[0].LeaseID}).problem(t, 409, "lease_lost")
	if d := s.task(got[0].ID); d.Attempt != 1 || len(d.Attempts) != 1 ||
		!strings.Contains(d.Attempts[0].Error, "lease ran out") {
		t.Errorf("%+v", d)
	}
	// A task that ends because of its own limit says so.
	for want, option := range map[string]object{"timed out after 1s": {"timeout": "1s"},
		"deadline": {"deadline_in": "1s"}} {
		option["kind"], option["max_attempts"] = "k", 1
		id := s.enqueue(option)
		got = s.lease(object{"queues": []string{"default"}, "lease": "1m", "wait": "5s"})
		if len(got) != 1 || got[0].ID != id || time.Until(got[0].LeaseUntil) > time.Second ||
			got[0].Deadline.IsZero() != (want != "deadline") {
			t.Fatalf("%s: %+v", want, got)
		}
		if d := s.awaitState(id, "discarded"); !strings.Contains(d.Attempts[0].Error, want) {
			t.Errorf("%s: %+v", want, d.Attempts)
		}
	}
}

func TestALongPollWakesForATask(t *testing.T) {
	s := start(t)
	got := make(chan []server.LeasedTask)
	go func() { got <- s.lease(object{"queues": []string{"default"}, "wait": "20s"}) }()
	time.Sleep(100 * time.Millisecond) // it is most likely waiting now; the test holds either way
	s.do("POST", "/api/v1/tasks", object{"kind": "k"}).want(t, 201, nil)
	select {
	case tasks := <-got:
		if len(tasks) != 1 {
			t.Error(tasks)
		}
	case <-time.After(15 * time.Second):
		t.Fatal("the poll did not wake")
	}
	if tasks := s.lease(object{"queues": []string{"default"}}); len(tasks) != 0 {
		t.Error(tasks)
	}
}

func TestACancelledTaskTellsItsWorker(t *testing.T) {
	s := start(t)
	s.do("POST", "/api/v1/tasks", object{"kind": "k"}).want(t, 201, nil)
	got := s.lease(object{"queues": []string{"default"}, "wait": "5s"})
	var e server.Edited
	if s.do("POST", "/api/v1/tasks/"+got[0].ID+"/cancel", nil).want(t, 200, &e); e.Result != "requested" {
		t.Fatal(e)
	}
	var r server.LeaseResult
	eventually(t, func() bool { // a heartbeat brings it; a log line makes one come soon
		s.do("POST", "/api/v1/lease/extend", object{"lease_id": got[0].LeaseID, "logs": []string{"still here"}}).want(t, 200,
			&r)
		return r.CancelRequested
	})
}

func TestAServerThatStopsHandsBackWhatIsLeased(t *testing.T) {
	s := start(t)
	s.do("POST", "/api/v1/tasks", object{"kind": "k"}).want(t, 201, nil)
	puller := s.client.NewPuller()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- puller.Run(ctx) }()
	lent, err := puller.Claim(t.Context(), tusk.Pull{Queues: []string{"default"}, Wait: 5 * time.Second})
	if err != nil || len(lent) != 1 {
		t.Fatal(lent, err)
	}
	// Another process may end the task, because the lease is in the database.
	var r server.LeaseResult
	s.do("POST", "/api/v1/lease/release", object{"lease_id": lent[0].Receipt.String()}).want(t, 200, &r)
	if lent, err = puller.Claim(t.Context(), tusk.Pull{Queues: []string{"default"}, Wait: 5 * time.Second}); err != nil ||
		len(lent) != 1 {
		t.Fatal(lent, err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if d := s.task(lent[0].ID.String()); d.State != "available" || d.Attempt != 0 || d.Crashes != 0 {
		t.Errorf("%+v", d)
	}
	if _, err := puller.Claim(t.Context(), tusk.Pull{Queues: []string{"default"}, Wait: time.Second}); err == nil {
		t.Error("a puller that has ended lends")
	}
}

func TestARevokedTokenGetsNoTaskForWhichItWaits(t *testing.T) {
	s := start(t)
	var made server.NewToken
	s.do("POST", "/api/v1/tokens", object{"name": "w", "role": "worker"}).want(t, 201, &made)
	got := make(chan answer)
	go func() { got <- s.as(made.Secret, "POST", "/api/v1/lease", `{"queues":["default"],"wait":"15s"}`) }()
	time.Sleep(200 * time.Millisecond) // it waits now
	s.do("DELETE", "/api/v1/tokens/"+made.Token.ID, nil).want(t, 204, nil)
	time.Sleep(2 * time.Second) // a revocation may take this long to arrive
	id := s.enqueue(object{"kind": "k"})
	(<-got).problem(t, 401, "unauthenticated")
	if d := s.awaitState(id, "available"); d.Attempt != 0 {
		t.Errorf("the task was not handed back as it was: %+v", d)
	}
}

func TestBadLeasesAreRefused(t *testing.T) {
	s := start(t)
	for body, code := range map[string]string{
		`{"queues":[]}`: "out_of_range", `{"queues":["A B"]}`: "invalid_name", `{"queues":["a"],"max":1001}`: "out_of_range",
		`{"queues":["a"],"wait":"21s"}`: "out_of_range", `{"queues":["a"],"lease":"13h"}`: "out_of_range",
		`{"queues":["a"],"lease":"1ms"}`: "out_of_range",
	} {
		a := s.do("POST", "/api/v1/lease", body)
		if a.status != 422 && a.status != 400 {
			t.Errorf("%s: %d %s, want %s", body, a.status, a.body, code)
		}
	}
	s.do("POST", "/api/v1/lease/complete", `{"lease_id":"x"}`).problem(t, 400, "invalid_id")
	s.do("POST", "/api/v1/lease/complete", object{"lease_id": tusk.NewID().String() +
		".00000000000000000000000000000000"}).problem(t, 409, "lease_lost")
	bound := s.tokenFor(access.Token{Name: "w", Role: access.Worker, Queues: []string{"team-a.*"}})
	s.as(bound, "POST", "/api/v1/lease", `{"queues":["default"]}`).problem(t, 403, "forbidden")
	s.as(bound, "POST", "/api/v1/lease", `{"queues":["team-a.x"]}`).want(t, 200, nil)
	tenant := s.tokenFor(access.Token{Name: "t", Role: access.Worker, Tenants: []string{"acme"}})
	p := s.as(tenant, "POST", "/api/v1/lease", `{"queues":["default"]}`).problem(t, 403, "forbidden")
	if !strings.Contains(p.Detail,
		"bound to tenants, and a lease takes tasks of all tenants: use one that is bound to queues only") {
		t.Error(p.Detail)
	}
	s.do("POST", "/api/v1/tasks", object{"kind": "k"}).want(t, 201, nil)
	s.do("POST", "/api/v1/lease", `{"queues":["default"],"wait":"21s"}`).problem(t, 422, "out_of_range")
	got := s.lease(object{"queues": []string{"default"}, "wait": "5s"})
	s.as(bound, "POST", "/api/v1/lease/complete", object{"lease_id": got[0].LeaseID}).problem(t, 403, "forbidden")
}
