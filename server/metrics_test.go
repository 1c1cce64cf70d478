package server_test

import (
	"net/http"
	"testing"

	"github.com/tuskqueue/tusk/server"
	"github.com/tuskqueue/tusk/server/access"
)

func TestMetricsAreForThoseWhoMayReadEverything(t *testing.T) {
	s := start(t, func(c *server.Config) {
		c.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("tusk_up 1\n")) })
	})
	for name, test := range map[string]struct {
		token  string
		status int
	}{
		"nobody":              {"", 401},
		"a producer":          {s.tokenFor(access.Token{Name: "p", Role: access.Producer}), 403},
		"a viewer of one":     {s.tokenFor(access.Token{Name: "one", Role: access.Viewer, Tenants: []string{"acme"}}), 403},
		"a viewer of a queue": {s.tokenFor(access.Token{Name: "q", Role: access.Viewer, Queues: []string{"mail"}}), 403},
		"a viewer":            {s.tokenFor(access.Token{Name: "v", Role: access.Viewer}), 200},
	} {
		if a := s.as(test.token, "GET", "/metrics", nil); a.status != test.status ||
			(a.body == "tusk_up 1\n") != (a.status == 200) {
			t.Errorf("%s: %d %q, want %d", name, a.status, a.body, test.status)
		}
	}
	if a := start(t).do("GET", "/metrics", nil); a.status != 404 {
		t.Errorf("a server without metrics: %d", a.status)
	}
}
