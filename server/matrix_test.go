package server_test

import (
	"bufio"
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"gocloud.dev/blob/memblob"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/archive"
	"github.com/tuskqueue/tusk/server"
	"github.com/tuskqueue/tusk/server/access"
	"github.com/tuskqueue/tusk/server/ui"
)

// filledPath fills in the variables of a path.
func filledPath(path string) string {
	return strings.NewReplacer("{id}", tusk.NewID().String(), "{queue}", "default", "{name}", "nothing", "{fingerprint}",
		"f", "{action}", "retry", "{tenant}", "acme", "{kind}", "k", "{worker}", tusk.NewID().String(), "{$}",
		"").Replace(path)
}

// granted lists the permissions of each role. It repeats the table in the code, so that a mistake there is noticed.
var granted = map[access.Role]string{
	access.Producer: "enqueue", access.Worker: "work", access.Service: "enqueue work", access.Viewer: "read",
	access.Operator: "read operate enqueue",
	access.Admins:   "read operate enqueue work admin",
}

func TestEveryAPIRouteAsksForItsPermission(t *testing.T) {
	s := start(t)
	tokens := map[access.Role]string{"": ""}
	for _, role := range access.Roles() {
		tokens[role] = s.tokenFor(access.Token{Name: string(role), Role: role})
	}
	n := 0
	for _, r := range server.Routes() {
		if r.Path == "/api/v1/events" { // it never ends: see TestEveryStreamAsksForItsPermission
			continue
		}
		for role, token := range tokens {
			var body any
			if r.Method != "GET" && r.Method != "DELETE" {
				body = "{}"
			}
			a := s.as(token, r.Method, filledPath(r.Path), body)
			may := r.Need == access.Open || slices.Contains(strings.Fields(granted[role]), string(r.Need))
			refused := a.status == http.StatusUnauthorized || a.status == http.StatusForbidden
			if may == refused || role == "" && !may && a.status != http.StatusUnauthorized {
				t.Errorf("%s %s as %q: %d, granted: %v", r.Method, r.Path, role, a.status, may)
			}
			n++
		}
	}
	if n < 250 {
		t.Errorf("only %d combinations", n)
	}
}

// withArchive gives a server an empty archive, so that it has all pages.
func withArchive(c *server.Config) { c.Archive = archive.New(memblob.OpenBucket(nil), "") }

func TestEveryPageAsksForItsPermission(t *testing.T) {
	s := start(t, withArchive)
	for _, r := range ui.Routes() {
		if r.Stream {
			continue
		}
		for _, role := range append(access.Roles(), "") {
			token := ""
			if role != "" {
				token = s.tokenFor(access.Token{Name: string(role), Role: role})
			}
			a := s.as(token, r.Method, filledPath(r.Path), nil)
			may := r.Need == access.Open || slices.Contains(strings.Fields(granted[role]), string(r.Need))
			refused := a.status == 401 || a.status == 403 || a.status == 303 &&
				strings.HasPrefix(a.header.Get("Location"), "/login?next=")
			if r.Path != "/login" && r.Path != "/logout" && may == refused {
				t.Errorf("%s %s as %q: %d %s, granted: %v", r.Method, r.Path, role, a.status, a.header.Get("Location"), may)
			}
		}
	}
}

// watch opens a stream and returns its status, with the data of the first event if there is one.
func (s *site) watch(token, path string) (status int, first string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 20*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "GET", s.URL+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer a.Body.Close()
	if a.StatusCode != http.StatusOK || a.Header.Get("Content-Type") != "text/event-stream" {
		return a.StatusCode, ""
	}
	lines := bufio.NewScanner(a.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			return a.StatusCode, data
		}
	}
	s.t.Fatalf("%s ended without an event: %v", path, lines.Err())
	return 0, ""
}

// streams returns the streams of server-sent events that never end: one of the API and one of the pages. Those of
// lists, and of a single task or operation, have their own tests.
func streams(t *testing.T) (paths []string) {
	for _, r := range server.Routes() {
		if r.Stream && r.Method == "GET" && !r.Gives && r.Path != "/api/v1/tasks/export" && r.Path != "/metrics" {
			paths = append(paths, r.Path)
		}
	}
	for _, r := range ui.Routes() {
		if r.Stream {
			paths = append(paths, r.Path)
		}
	}
	if !slices.Equal(paths, []string{"/api/v1/events", "/live", "/live/lists", "/tasks/{id}/live", "/bulk/{id}/live"}) {
		t.Fatalf("other streams than those that are known: %v", paths)
	}
	return paths[:2]
}

func TestEveryStreamAsksForItsPermission(t *testing.T) {
	s := start(t)
	for _, queue := range []string{"mine", "theirs"} {
		s.enqueue(object{"kind": "k", "queue": queue})
	}
	for _, path := range streams(t) {
		for _, role := range append(access.Roles(), "") {
			token, may := "", strings.Contains(granted[role], "read")
			if role != "" {
				token = s.tokenFor(access.Token{Name: string(role), Role: role})
			}
			status, first := s.watch(token, path)
			if want := map[bool]int{true: 200, false: 403}[may]; status != want && (role != "" || status != 401) || may &&
				!strings.Contains(first, "theirs") {
				t.Errorf("%s as %q: %d %s", path, role, status, first)
			}
		}
		bound := s.tokenFor(access.Token{Name: "bound", Role: access.Viewer, Queues: []string{"mine"}})
		if status, first := s.watch(bound, path); status != 200 || !strings.Contains(first, "mine") ||
			strings.Contains(first, "theirs") {
			t.Errorf("%s: %d, and beyond the bounds: %s", path, status, first)
		}
		tenant := s.tokenFor(access.Token{Name: "tenant", Role: access.Viewer, Tenants: []string{"acme"}})
		if status, _ := s.watch(tenant, path); status != 403 {
			t.Errorf("%s tells a tenant of all: %d", path, status)
		}
	}
}
