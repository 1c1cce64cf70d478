package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/tuskqueue/tusk/server"
)

// A client that sends an Idempotency-Key repeats the request if no response arrives.
func TestAnIdempotencyKeyIsRefusedWhereItHasNoEffect(t *testing.T) {
	s := start(t)
	for path, body := range map[string]any{
		"/api/v1/workflows":       object{"tasks": []object{{"name": "a", "kind": "k"}}},
		"/api/v1/tasks/large":     object{"kind": "k"},
		"/api/v1/tasks/edit":      object{"op": "cancel", "ids": []string{}},
		"/api/v1/lease":           object{},
		"/api/v1/queues/q/pause":  nil,
		"/api/v1/schedules/s/run": nil,
	} {
		p := s.do("POST", path, body, "Idempotency-Key", "k").problem(t, 400, "invalid_header")
		if p.Field != "Idempotency-Key" || !strings.Contains(p.Detail, "/api/v1/tasks/batch") {
			t.Errorf("%s: %+v", path, p)
		}
	}
	for path, want := range map[string]string{"": "a repeated request is carried out again",
		"/wait": "the end of a lease is recognized by its lease_id if it is repeated"} {
		p := s.do("POST", "/api/v1/lease"+path, object{}, "Idempotency-Key", "k").problem(t, 400, "invalid_header")
		if !strings.HasSuffix(p.Detail, want) {
			t.Errorf("%s: %+v", path, p)
		}
	}
	s.do("POST", "/api/v1/tasks/batch", object{"tasks": []object{{"kind": "k"}}}, "Idempotency-Key", "k").want(t, 201, nil)
	s.do("GET", "/api/v1/queues", nil, "Idempotency-Key", "k").want(t, 200, nil)
}

func TestHEADReadsNoStream(t *testing.T) {
	s := start(t)
	for _, route := range server.Routes() {
		if route.Method != "GET" || strings.Contains(route.Path, "{") || !route.Stream || route.Gives {
			continue
		}
		a := s.do("HEAD", route.Path, nil)
		if a.status != http.StatusMethodNotAllowed || strings.Contains(a.header.Get("Allow"), "HEAD") {
			t.Errorf("%s: %d, %v", route.Path, a.status, a.header)
		}
	}
	for _, path := range []string{"/live", "/live/lists", "/tasks/x/live", "/bulk/x/live"} {
		if a := s.do("HEAD", path, nil); a.status != http.StatusMethodNotAllowed || a.header.Get("Allow") != "GET" {
			t.Errorf("%s: %d, %v", path, a.status, a.header)
		}
	}
	if a := s.do("HEAD", "/tasks", nil); a.status != 200 {
		t.Errorf("%+v", a)
	}
	if a := s.do("HEAD", "/api/v1/queues", nil); a.status != 200 || a.header.Get("Content-Length") == "" || a.body != "" {
		t.Errorf("%+v", a)
	}
}

func TestTheSchemeOfATokenIsReadInAnyCase(t *testing.T) {
	s := start(t)
	for _, scheme := range []string{"Bearer", "bearer", "BEARER"} {
		s.as("", "GET", "/api/v1/me", nil, "Authorization", scheme+" "+s.token).want(t, 200, nil)
	}
	for _, bad := range []string{"Bearer", "Basic " + s.token, s.token} {
		s.as("", "GET", "/api/v1/me", nil, "Authorization", bad).problem(t, 401, "unauthenticated")
	}
}
