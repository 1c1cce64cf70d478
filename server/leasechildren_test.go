package server_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server"
	"github.com/tuskqueue/tusk/server/access"
	"github.com/tuskqueue/tusk/server/push"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

func TestAWorkerOverHTTPWaitsForChildrenOnEveryEngine(t *testing.T) {
	all := maps.Clone(engines)
	all["memory"] = func(testing.TB) store.Store { return memory.New() }
	for name, open := range all {
		t.Run(name, func(t *testing.T) {
			s := startOn(t, newClient(t, open(t)))
			service := s.tokenFor(access.Token{Name: "s", Role: access.Service})
			var sum server.EnqueuedTask
			s.as(service, "POST", "/api/v1/tasks", object{"kind": "sum", "queue": "sums", "tenant": "acme",
				"max_attempts": 1}).want(t, 201, &sum)
			parent := s.leaseAs(service, "sums")
			children := []object{}
			for i := range 3 {
				children = append(children, object{"kind": "square", "queue": "squares", "args": object{"n": i},
					"tags": []string{"part"}, "priority": i, "timeout": "1m", "max_attempts": 1})
			}
			wait := object{"lease_id": parent.LeaseID, "children": children}
			s.as(service, "POST", "/api/v1/lease/wait", wait).want(t, 200, nil)
			s.as(service, "POST", "/api/v1/lease/wait", wait).want(t, 200, nil) // its response may have been lost
			if d := s.task(sum.ID); d.State != "pending" || d.Attempt != 0 {
				t.Errorf("%+v", d)
			}
			for i := range 3 {
				child := s.leaseAs(service, "squares")
				if string(child.Args) != fmt.Sprintf(`{"n":%d}`, i) || child.Tenant != "acme" || child.Workflow != sum.ID ||
					child.Tags[0] != "part" || child.Max != 1 || child.Timeout == 0 {
					t.Errorf("%+v", child)
				}
				if i == 1 {
					s.as(service, "POST", "/api/v1/lease/fail", object{"lease_id": child.LeaseID, "error": "no"}).want(t, 200, nil)
					continue
				}
				s.as(service, "POST", "/api/v1/lease/complete", object{"lease_id": child.LeaseID, "output": i * i}).want(
					t, 200, nil)
			}
			again := s.leaseAs(service, "sums")
			var got server.LeasedInputs
			s.as(service, "GET", "/api/v1/lease/inputs", nil, "Lease-Id", again.LeaseID).want(t, 200, &got)
			if again.ID != sum.ID || again.Attempt != 1 || len(got.Inputs) != 3 {
				t.Fatalf("%+v, %+v", again, got)
			}
			for i, want := range []string{"completed 0", "discarded ", "completed 4"} {
				if in := got.Inputs[i]; in.State+" "+string(in.Output) != want || in.Kind != "square" {
					t.Errorf("input %d: %+v", i, in)
				}
			}
			s.as(service, "POST", "/api/v1/lease/complete", object{"lease_id": again.LeaseID, "output": 4,
				"children": []object{{"kind": "tell"}}}).want(t, 200, nil)
			if tell := s.leaseAs(service, "default"); tell.Kind != "tell" || tell.Tenant != "acme" ||
				s.task(sum.ID).State != "completed" {
				t.Errorf("%+v", tell)
			}
			var flow server.Workflow
			s.do("GET", "/api/v1/workflows/"+sum.ID, nil).want(t, 200, &flow)
			if len(flow.Tasks) != 5 {
				t.Errorf("%d tasks", len(flow.Tasks))
			}
		})
	}
}

func TestPlacingChildrenNeedsThePermissionEnqueue(t *testing.T) {
	s := start(t)
	s.enqueue(object{"kind": "k", "queue": "shop.a", "tenant": "acme"})
	worker := s.tokenFor(access.Token{Name: "w", Role: access.Worker})
	parent := s.leaseAs(worker, "shop.a")
	one := func(queue string) object {
		return object{"lease_id": parent.LeaseID, "children": []object{{"kind": "k", "queue": queue}}}
	}
	for _, path := range []string{"wait", "complete"} {
		p := s.as(worker, "POST", "/api/v1/lease/"+path, one("shop.b")).problem(t, 403, "forbidden")
		if p.Field != "children" || !strings.Contains(p.Detail, "the role worker may not enqueue") ||
			!strings.Contains(p.Detail, "use a token with the role service") {
			t.Errorf("%+v", p)
		}
	}
	bound := s.tokenFor(access.Token{Name: "s", Role: access.Service, Queues: []string{"shop.*"},
		Tenants: []string{"acme"}})
	for _, queue := range []string{"other", ""} {
		p := s.as(bound, "POST", "/api/v1/lease/wait", one(queue)).problem(t, 403, "forbidden")
		if p.Field != "children[0].queue" || !strings.Contains(p.Detail, "is not among its queues") {
			t.Errorf("%+v", p)
		}
	}
	elsewhere := s.tokenFor(access.Token{Name: "e", Role: access.Service, Tenants: []string{"umbrella"}})
	s.as(elsewhere, "POST", "/api/v1/lease/wait", one("shop.b")).problem(t, 403, "forbidden")
	for _, field := range []string{"tenant", "key"} {
		child := object{"kind": "k", "queue": "shop.b", field: "umbrella"}
		s.as(bound, "POST", "/api/v1/lease/wait", object{"lease_id": parent.LeaseID, "children": []object{child}}).problem(
			t, 400, "unknown_field")
	}
	if d := s.task(parent.ID); d.State != "running" {
		t.Errorf("%+v", d)
	}
	s.as(bound, "POST", "/api/v1/lease/wait", one("shop.b")).want(t, 200, nil)
	if child := s.leaseAs(worker, "shop.b"); child.Tenant != "acme" {
		t.Errorf("%+v", child)
	}
	s.as(s.tokenFor(access.Token{Name: "p", Role: access.Service}), "POST", "/api/v1/tasks", object{"kind": "k"}).want(
		t, 201, nil)
}

func TestChildrenThatAreRefusedLeaveTheLeaseOpen(t *testing.T) {
	s := start(t)
	id := s.enqueue(object{"kind": "k"})
	lease := s.leaseAs(s.token, "default").LeaseID
	many := make([]object, tusk.MaxWorkflow+1)
	for i := range many {
		many[i] = object{"kind": "k"}
	}
	for _, c := range []struct {
		children      any
		status        int
		code, problem string
	}{
		{nil, 400, "missing_field", "children"},
		{[]object{}, 400, "missing_field", "want 1 or more"},
		{many, 413, "batch_too_large", "10000"},
		{[]object{{"args": 1}}, 400, "missing_field", "kind"},
		{[]object{{"kind": "k"}, {"kind": "A B"}}, 400, "invalid_name", "A B"},
		{[]object{{"kind": "k", "delay": "99999h"}}, 422, "out_of_range", ""},
		{[]object{{"kind": "k", "run_at": "0001-01-01T00:00:00Z"}}, 422, "invalid_time", ""},
		{[]object{{"kind": "k", "on_conflict": "skip"}}, 400, "unknown_field", "on_conflict"},
		{[]object{{"kind": "k", "backoff": object{"shape": "up", "base": "1s"}}}, 400, "invalid_backoff", ""},
	} {
		body := object{"lease_id": lease}
		if c.children != nil {
			body["children"] = c.children
		}
		p := s.do("POST", "/api/v1/lease/wait", body).problem(t, c.status, c.code)
		if !strings.Contains(p.Field+" "+p.Detail, c.problem) {
			t.Errorf("%+v, want %s", p, c.problem)
		}
	}
	child := []object{{"kind": "k"}}
	s.enqueue(object{"kind": "k", "queue": "other"})
	other := s.leaseAs(s.token, "other").LeaseID
	var batch server.LeaseResults
	s.do("POST", "/api/v1/lease/batch", object{"items": []object{
		{"action": "wait", "lease_id": lease},
		{"action": "wait", "lease_id": lease, "children": []object{{"kind": "A B"}}},
		{"action": "wait", "lease_id": lease, "children": many},
		{"action": "fail", "lease_id": lease, "error": "x", "children": child},
		{"action": "extend", "lease_id": lease, "children": child},
		{"action": "wait", "lease_id": lease, "children": child, "output": 1},
		{"action": "fail", "lease_id": lease, "error": "x", "output": 1},
		{"action": "release", "lease_id": lease, "output": 1},
		{"action": "extend", "lease_id": lease, "output": 1},
		{"action": "finish", "lease_id": lease, "children": child},
		{"action": "wait", "lease_id": lease, "children": child, "output": nil},
		{"action": "complete", "lease_id": lease, "children": child},
		{"action": "wait", "lease_id": other, "children": many[3:]},
		{"action": "wait", "lease_id": other, "children": child},
	}}).want(t, 200, &batch)
	for i, want := range []string{"missing_field children", "invalid_name children[0].kind", "too_many children",
		"not_for_action children", "not_for_action children", "not_for_action output", "not_for_action output",
		"not_for_action output", "not_for_action output", "invalid_action action", " ", "lease_lost ", "too_many children",
		" "} {
		if r := batch.Results[i]; r.Code+" "+r.Field != want || r.OK != (want == " ") ||
			i == 2 && r.Detail != "are 10002 with those of the items before, at most 10000 are allowed in a request" {
			t.Errorf("item %d: %+v", i, r)
		}
	}
	if d := s.task(id); d.State != "pending" {
		t.Errorf("%+v", d)
	}
}

func TestAnEndpointSpawnsChildrenByTheAPI(t *testing.T) {
	s := start(t, allowLoopback)
	service := s.tokenFor(access.Token{Name: "s", Role: access.Service})
	var secret atomic.Value
	c := listen(t, func() string { return secret.Load().(string) },
		func(w http.ResponseWriter, _ *http.Request, m push.Message) {
			var got server.LeasedInputs
			s.as(service, "GET", "/api/v1/lease/inputs", nil, "Lease-Id", m.Data.LeaseID).want(t, 200, &got)
			if len(got.Inputs) > 0 {
				fmt.Fprint(w, string(got.Inputs[0].Output))
				return
			}
			s.as(service, "POST", "/api/v1/lease/wait", object{"lease_id": m.Data.LeaseID,
				"children": []object{{"kind": "picture", "queue": "pictures"}}}).want(t, 200, nil)
			w.WriteHeader(http.StatusAccepted)
		})
	secret.Store(s.register("hooks", c.URL, nil))
	id := s.enqueue(object{"kind": "album", "queue": "hooks", "max_attempts": 1})
	child := s.leaseAs(service, "pictures")
	s.as(service, "POST", "/api/v1/lease/complete", object{"lease_id": child.LeaseID, "output": 7}).want(t, 200, nil)
	if d := s.awaitState(id, "completed"); string(d.Output) != "7" || d.Attempt != 1 {
		t.Errorf("%+v", d)
	}
}

// narrow is a store that cannot hold children.
type narrow struct{ store.Store }

func (s narrow) Unwrap() store.Store { return s.Store }

func (s narrow) Finish(ctx context.Context, outcomes []store.Outcome) ([]store.ID, error) {
	if len(outcomes[0].Then) == 0 {
		return s.Store.Finish(ctx, outcomes)
	}
	return nil, fmt.Errorf("finish: %w: %w: table x is full", store.ErrNotCommitted, store.ErrUnstorable)
}

func TestChildrenThatTheDatabaseCannotHoldAreRefused(t *testing.T) {
	s := startOn(t, newClient(t, narrow{memory.New()}))
	s.enqueue(object{"kind": "k"})
	p := s.do("POST", "/api/v1/lease/wait", object{"lease_id": s.leaseAs(s.token, "default").LeaseID,
		"children": []object{{"kind": "k"}}}).problem(t, 413, "unstorable")
	if p.Detail != "the database cannot hold these values: send fewer tasks in a request, or smaller args" {
		t.Errorf("%+v", p)
	}
}
