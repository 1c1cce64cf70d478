package server_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server"
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
		{"POST /tasks", `{"kind":"k","delay":"1 month"}`, "invalid_duration", "delay", "7d, or a number of seconds"},
		{"POST /tasks", `{"kind":"k","delay":"36501d"}`, "invalid_duration", "delay", "36500d"},
		{"PUT /queues/q/retention?create=true", `{"completed":"30"}`, "invalid_duration", "completed", "or forever"},
		{"PUT /queues/q/retention?create=true", `{"completed":"0s"}`, "invalid_duration", "completed", "above 0"},
		{"PUT /queues/q/retention?create=true", `{"discarded":0}`, "invalid_duration", "discarded", "or forever"},
		{"PUT /queues/q/aging?create=true", `{"every":"0s"}`, "out_of_range", "every", "DELETE"},
		{"GET /tasks?from=yesterday", "", "invalid_time", "from", "24h or 7d"},
		{"GET /tasks?from=2026", "", "invalid_time", "from", "24h or 7d"},
		{"POST /tasks", `{"kind":"k","delay":"4000d"}`, "out_of_range", "delay", "3650d"},
		{"POST /tasks", `{"kind":"k","expires_in":"4000d"}`, "out_of_range", "expires_in", "3650d"},
		{"POST /tasks", `{"kind":"k","run_at":""}`, "invalid_time", "run_at", "2026-01-31T12:00:00Z"},
		{"POST /tasks/batch", `{"tasks":[{"kind":"k"},{"kind":"k","run_at":"2026-02-31T12:00:00Z"}]}`, "invalid_time",
			"tasks[1].run_at", "2026-02-31"},
		{"POST /tasks/edit", `{"ids":["zzz"],"action":"retry"}`, "invalid_id", "ids[0]", "UUID"},
		{"GET /uploads/zzz/" + strings.Repeat("0", 64), "", "invalid_id", "upload", "UUID"},
		{"POST /lease/complete", `{"lease_id":"zzz"}`, "invalid_id", "lease_id", "zzz"},
		{"POST " + task + "/reschedule", `{` + both + `}`, "not_both", "delay", "one of them"},
		{"POST " + task + "/retry", `{` + both + `}`, "not_both", "delay", "one of them"},
		{"POST /bulk", `{"filter":{"queue":["q"]},"action":"reschedule",` + both + `}`, "not_both", "delay", "one of them"},
	} {
		method, path, _ := strings.Cut(c.route, " ")
		var body any
		if c.body != "" {
			body = c.body
		}
		a := s.do(method, "/api/v1"+path, body)
		p := a.problem(t, a.status, c.code)
		if a.status/100 != 4 || p.Field != c.field || !strings.Contains(p.Detail, c.says) {
			t.Errorf("%s %s: %d %s", c.route, c.body, a.status, a.body)
		}
	}
}

func TestPagesRefuseATimeOf0ThatWouldSetNothing(t *testing.T) {
	s := start(t)
	if _, err := s.client.Enqueue(t.Context(), tusk.RawArgs{Name: "k"}, nil); err != nil {
		t.Fatal(err)
	}
	s.post("/queues", form("queue", "default", "every", "0")).want(t, 400, nil)
	s.post("/queues/retention", form("queue", "default", "completed", "0s")).want(t, 400, nil)
	s.post("/queues/retention", form("queue", "default", "completed", "7d")).want(t, 303, nil)
	s.post("/errors/zzz/retry", form("confirm", "yes")).want(t, 404, nil)
}

func TestDurationsAreReadAsTheCommandLineReadsThem(t *testing.T) {
	s := start(t)
	for text, want := range map[string]time.Duration{`"7d"`: 7 * 24 * time.Hour, `"1d12h"`: 36 * time.Hour,
		`"2w"`: 14 * 24 * time.Hour, `"90"`: 90 * time.Second, `"1.5d"`: 36 * time.Hour, `90`: 90 * time.Second,
		`"1h30m"`: 90 * time.Minute} {
		var e server.EnqueuedTask
		s.do("POST", "/api/v1/tasks", `{"kind":"k","delay":`+text+`}`).want(t, 201, &e)
		var d server.TaskDetail
		s.do("GET", "/api/v1/tasks/"+e.ID, nil).want(t, 200, &d)
		if got := d.RunAt.Sub(d.EnqueuedAt); got.Round(time.Second) != want {
			t.Errorf("%s: %v", text, got)
		}
	}
	s.do("POST", "/api/v1/workflows", `{"tasks":[{"name":"a","kind":"k","delay":"7d"}]}`).want(t, 201, nil)
	var q server.Queue
	s.do("PUT", "/api/v1/queues/default/retention", `{"completed":"30d","discarded":"forever"}`).want(t, 200, &q)
	if time.Duration(q.Retention.Completed) != 30*24*time.Hour {
		t.Errorf("%+v", q.Retention)
	}
	var page server.TaskPage
	if s.do("GET", "/api/v1/tasks?from=7d", nil).want(t, 200, &page); len(page.Tasks) != 8 {
		t.Errorf("%d tasks", len(page.Tasks))
	}
}

func TestAnUnknownHostIsToldTheFlag(t *testing.T) {
	s := start(t)
	r, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+"/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = "tusk.example.com"
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	if text, err := io.ReadAll(a.Body); err != nil || a.StatusCode != 421 || !strings.Contains(string(text),
		"tusk serve --host") {
		t.Errorf("%d %s, %v", a.StatusCode, text, err)
	}
}
