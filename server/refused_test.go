package server_test

import (
	"strings"
	"testing"

	"github.com/tuskqueue/tusk"
)

// What a request means in two ways, or not at all, is refused, and the error names the field as the request does.
func TestWhatIsRefusedNamesTheFieldAsTheRequestDoes(t *testing.T) {
	s := start(t)
	e, err := s.client.Enqueue(t.Context(), tusk.RawArgs{Name: "k"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	task := "/tasks/" + e.ID.String()
	const both = `"run_at":"2030-01-01T00:00:00Z","delay":"1h"`
	for _, c := range []struct {
		route, body, code, field, says string
	}{
		{"POST /tasks", `{"kind":"k",` + both + `}`, "not_both", "delay", "one of them"},
		{"POST " + task + "/reschedule", `{` + both + `}`, "not_both", "delay", "one of them"},
		{"POST " + task + "/retry", `{` + both + `}`, "not_both", "delay", "one of them"},
		{"POST /bulk", `{"filter":{"queue":["q"]},"action":"reschedule",` + both + `}`, "not_both", "delay", "one of them"},
	} {
		method, path, _ := strings.Cut(c.route, " ")
		a := s.do(method, "/api/v1"+path, c.body)
		p := a.problem(t, a.status, c.code)
		if a.status/100 != 4 || p.Field != c.field || !strings.Contains(p.Detail, c.says) {
			t.Errorf("%s %s: %d %s", c.route, c.body, a.status, a.body)
		}
	}
}
