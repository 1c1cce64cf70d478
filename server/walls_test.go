package server_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tuskqueue/tusk/server"
	"github.com/tuskqueue/tusk/server/access"
	"github.com/tuskqueue/tusk/server/ui"
)

func TestNoBodyIsReadBeyondItsLimit(t *testing.T) {
	s := start(t, withArchive, func(c *server.Config) { c.MaxBody = 1 << 10 })
	stranger := s.tokenFor(access.Token{Name: "viewer", Role: access.Viewer})
	text, err := server.OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths map[string]map[string]struct{ RequestBody any }
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	large, n := `{"x":"`+strings.Repeat("x", 2<<10)+`"}`, 0
	for _, r := range server.Routes() {
		if doc.Paths[r.Path][strings.ToLower(r.Method)].RequestBody == nil {
			continue
		}
		n++
		if !r.Takes { // parts of uploads have their own limit
			s.do(r.Method, filledPath(r.Path), large).problem(t, 413, "body_too_large")
		}
		s.as(stranger, r.Method, filledPath(r.Path), large).problem(t, 403, "forbidden") // and the body is not read
		s.as("", r.Method, filledPath(r.Path), large).problem(t, 401, "unauthenticated")
	}
	if n < 25 {
		t.Errorf("only %d routes have bodies", n)
	}
	for _, r := range ui.Routes() {
		if r.Method != "POST" {
			continue
		}
		most, limit := 4<<20, "4096 KiB"
		if r.Need == access.Open {
			most, limit = 16<<10, "16 KiB"
		}
		// Only slightly too large, so that the sender is not cut off while it sends.
		if a := s.post(filledPath(r.Path), "x="+strings.Repeat("x", most)); a.status != 413 ||
			!strings.Contains(a.body, limit) {
			t.Errorf("%s: %d %.300s", r.Path, a.status, a.body)
		}
	}
}

func TestAReadOnlyServerChangesNothing(t *testing.T) {
	s := start(t, withArchive, func(c *server.Config) { c.ReadOnly = true })
	for _, r := range server.Routes() {
		if r.Method == "GET" || r.Need == access.Open {
			continue
		}
		s.do(r.Method, filledPath(r.Path), "{}").problem(t, 403, "read_only")
	}
	for _, r := range ui.Routes() {
		if r.Method == "POST" && r.Need != access.Open {
			if a := s.do("POST", filledPath(r.Path), nil); a.status != 403 {
				t.Errorf("%s: %d", r.Path, a.status)
			}
		}
	}
	s.do("GET", "/api/v1/tasks", nil).want(t, 200, nil)
}

func TestOtherSitesAndOtherNamesAreRefused(t *testing.T) {
	s := start(t, func(c *server.Config) { c.Hosts = []string{"tusk.example.com"}; c.Dev = true })
	for _, path := range []string{"/api/v1/queues/default/pause", "/queues/default/pause", "/login"} {
		s.do("POST", path, nil, "Sec-Fetch-Site", "cross-site").problem(t, 403, "cross_origin")
		s.do("POST", path, nil, "Sec-Fetch-Site", "same-site").problem(t, 403, "cross_origin")
		s.do("POST", path, nil, "Origin", "https://evil.example").problem(t, 403, "cross_origin")
		s.do("POST", path, nil, "Origin", "null").problem(t, 403, "cross_origin")
	}
	s.do("POST", "/api/v1/queues/default/pause?create=true", nil, "Sec-Fetch-Site", "same-origin").want(t, 200, nil)
	for host, status := range map[string]int{"localhost": 200, "localhost:80": 200, "127.0.0.1": 200, "127.0.0.9:1": 200,
		"[::1]:80": 200, "tusk.example.com": 200,
		"TUSK.example.com:443": 200, "evil.example": 421, "localhost.evil.example": 421, "127.0.0.1.nip.io": 421,
		"0.0.0.0": 421, "10.0.0.1": 421, "[::ffff:10.0.0.1]": 421, "tusk.example.com.": 200} {
		if a := s.do("GET", "/healthz", nil, "Host", host); a.status != status {
			t.Errorf("%s: %d, want %d", host, a.status, status)
		}
	}
}

func TestEveryAnswerHasItsSecurityHeaders(t *testing.T) {
	s := start(t)
	for _, path := range []string{"/", "/login", "/tasks", "/nothing", "/api/v1/tasks", "/api/v1/nothing", "/healthz",
		"/static/app.js", "/static/nothing", "//"} {
		h := s.as("", "GET", path, nil).header
		csp := h.Get("Content-Security-Policy")
		for _, part := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'",
			"base-uri 'none'", "form-action 'self'", "require-trusted-types-for 'script'"} {
			if !strings.Contains(csp, part) {
				t.Errorf("%s: no %s", path, part)
			}
		}
		if strings.Contains(csp, "unsafe") || h.Get("X-Content-Type-Options") != "nosniff" ||
			h.Get("X-Frame-Options") != "DENY" || h.Get("Referrer-Policy") != "no-referrer" ||
			h.Get("Access-Control-Allow-Origin") != "" || h.Get("X-Request-Id") == "" {
			t.Errorf("%s: %v", path, h)
		}
	}
}

func TestSecretsStayOutOfLogsAndPages(t *testing.T) {
	var log safeBuffer
	s, f := filled(t, func(c *server.Config) { c.Logger = log.logger() })
	paths := append(pagesOf(f), "/api/v1/tasks?limit=1000", "/api/v1/tasks/export", "/api/v1/tasks/export?format=csv",
		"/api/v1/tasks/"+f.Completed.String(), "/api/v1/schedules", "/api/v1/schedules/sweep-carts", "/schedules/sweep-carts",
		"/api/v1/tasks?key=s3cr3t-in-query")
	for _, path := range paths {
		if a := s.do("GET", path, nil); strings.Contains(a.body, "s3cr3t-canary") {
			t.Errorf("%s shows a secret", path)
		}
	}
	if text := log.String(); strings.Contains(text, "s3cr3t") || strings.Contains(text, s.token) ||
		!strings.Contains(text, "test-admin") {
		t.Error("the log has a secret, or no names")
	}
}

func TestTheMaskCanHideEverything(t *testing.T) {
	s, f := filled(t, func(c *server.Config) { c.Mask = maskAll })
	var d server.TaskDetail
	s.do("GET", "/api/v1/tasks/"+f.Completed.String(), nil).want(t, 200, &d)
	if string(d.Args) != `"[hidden]"` || string(d.Output) != `"[hidden]"` {
		t.Error(string(d.Args), string(d.Output))
	}
	if body := s.do("GET", "/tasks/"+f.Completed.String(), nil).body; strings.Contains(body, "customer-") {
		t.Error("a page shows args")
	}
}

func TestOpenAPIIsValidJSONAndNamesEveryRoute(t *testing.T) {
	text, err := server.OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		OpenAPI string
		Paths   map[string]map[string]any
	}
	if err := json.Unmarshal(text, &doc); err != nil || doc.OpenAPI != "3.1.0" {
		t.Fatal(err, doc.OpenAPI)
	}
	for _, r := range server.Routes() {
		if doc.Paths[r.Path][strings.ToLower(r.Method)] == nil {
			t.Errorf("%s %s is not described", r.Method, r.Path)
		}
	}
}
