package server_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server"
)

// A request that is ambiguous or meaningless is refused, and the error names the field as the request does.
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

func TestBadInputIsRefusedByItsCode(t *testing.T) {
	s := start(t)
	task := "/api/v1/tasks"
	deep := strings.Repeat("[", 100) + strings.Repeat("]", 100)
	for _, c := range []struct {
		body   string
		status int
		code   string
	}{
		{``, 400, "invalid_json"},
		{`nonsense`, 400, "invalid_json"},
		{`{"kind":"a"`, 400, "invalid_json"},
		{`{"kind":"a"} {}`, 400, "invalid_json"},
		{`{"kind":"a"} x`, 400, "invalid_json"},
		{"\xef\xbb\xbf{\"kind\":\"a\"}", 400, "invalid_json"},
		{`{"kind":"a","args":{"x":01}}`, 400, "invalid_json"},
		{`{"kind":"a","args":NaN}`, 400, "invalid_json"},
		{`{"kind":"a","kind":"b"}`, 400, "duplicate_field"},
		{`{"kind":"a","args":{"x":1,"x":2}}`, 400, "duplicate_field"},
		{`{"kind":"a","Queue":"b"}`, 400, "unknown_field"},
		{`{"kind":"a","nonsense":1}`, 400, "unknown_field"},
		{`{"kind":"a","backoff":{"shap":"linear"}}`, 400, "unknown_field"},
		{`[]`, 400, "invalid_type"},
		{`{"kind":1}`, 400, "invalid_type"},
		{`{"kind":"a","priority":"1"}`, 400, "invalid_type"},
		{`{"kind":"a","priority":40000}`, 400, "number_out_of_range"},
		{`{"kind":"a","priority":1e400}`, 400, "number_out_of_range"},
		{`{"kind":"a","tags":"x"}`, 400, "invalid_type"},
		{`{"kind":null}`, 400, "null_not_allowed"},
		{`null`, 400, "null_not_allowed"},
		{`{"kind":"a","tags":null}`, 400, "null_not_allowed"},
		{`{"kind":"a","tags":[null]}`, 400, "null_not_allowed"},
		{`{"kind":"a","delay":true}`, 400, "invalid_type"},
		{`{"kind":"a","delay":-1}`, 400, "invalid_duration"},
		{`{"kind":"a","delay":1e300}`, 400, "invalid_duration"},
		{`{"kind":"a","backoff":{"shape":"linear"}}`, 400, "missing_field"},
		{`{}`, 400, "missing_field"},
		{"{\"kind\":\"a\",\"args\":\"\xff\"}", 400, "invalid_utf8"},
		{`{"kind":"a","args":"\ud800"}`, 422, "invalid_utf8"},
		{`{"kind":"a","key":"\udc00"}`, 422, "invalid_utf8"},
		{`{"kind":"a","args":"\u0000"}`, 422, "nul_not_allowed"},
		{`{"kind":"a","key":"\u0000"}`, 400, "nul_not_allowed"},
		{`{"kind":"a","args":"\u0000"`, 400, "nul_not_allowed"},
		{`{"kind":"a","args":` + deep + `}`, 422, "json_too_complex"},
		{`{"kind":"A"}`, 400, "invalid_name"},
		{`{"kind":"a","queue":"'; drop table tasks; --"}`, 400, "invalid_name"},
		{`{"kind":"a","queue":"../x"}`, 400, "invalid_name"},
		{`{"kind":"a","tenant":"a\u202eb"}`, 400, "invalid_name"},
		{`{"kind":"a","key":"a\nb"}`, 400, "invalid_text"},
		{`{"kind":"a","max_attempts":-1}`, 400, "out_of_range"},
		{`{"kind":"a","max_attempts":1000000000}`, 400, "out_of_range"},
		{`{"kind":"a","timeout":"87600h"}`, 422, "out_of_range"},
		{`{"kind":"a","weight":-1}`, 400, "out_of_range"},
		{`{"kind":"a","weight":1000001}`, 400, "out_of_range"},
		{`{"kind":"a","deadline_in":"-5m"}`, 400, "invalid_duration"},
		{`{"kind":"a","deadline":"9999-01-01T00:00:00Z"}`, 422, "out_of_range"},
		{`{"kind":"a","ephemeral":true,"key":"k","on_conflict":"rerun"}`, 422, "needs_history"},
		{`{"kind":"a","ephemeral":true,"key":"k","on_conflict":"once"}`, 422, "needs_history"},
		{`{"kind":"a","on_conflict":"rerun"}`, 422, "needs_key"},
		{`{"kind":"a","key":"k","source_time":"2026-01-01T00:00:00Z"}`, 422, "needs_rerun"},
		{`{"kind":"a","delay":"-5m"}`, 400, "invalid_duration"},
		{`{"kind":"a","delay":"1 month"}`, 400, "invalid_duration"},
		{`{"kind":"a","delay":"9000000000000000000s"}`, 400, "invalid_duration"},
		{`{"kind":"a","run_at":"tomorrow"}`, 400, "invalid_time"},
		{`{"kind":"a","run_at":"2026-01-01T00:00:00"}`, 400, "invalid_time"},
		{`{"kind":"a","run_at":"9999-01-01T00:00:00Z"}`, 422, "out_of_range"},
		{`{"kind":"a","run_at":"0001-01-01T00:00:00Z"}`, 422, "invalid_time"},
		{`{"kind":"a","run_at":"1970-01-01T00:00:00Z"}`, 422, "invalid_time"},
		{`{"kind":"a","expires_at":"0001-01-01T00:00:00Z"}`, 422, "invalid_time"},
		{`{"kind":"a","deadline":"0001-01-01T00:00:00Z"}`, 422, "invalid_time"},
		{`{"kind":"a","key":"k","on_conflict":"rerun","source_time":"0001-01-01T00:00:00Z"}`, 422, "invalid_time"},
		{`{"kind":"a","on_conflict":"explode"}`, 400, "invalid_policy"},
		{`{"kind":"a","backoff":{"shape":"square","base":"1s"}}`, 400, "invalid_backoff"},
		{`{"kind":"a","args":"` + strings.Repeat("x", 300<<10) + `"}`, 413, "args_too_large"},
		{`{"kind":"a","args":"` + strings.Repeat("x", 9<<20) + `"}`, 413, "body_too_large"},
	} {
		a := s.do("POST", task, c.body)
		var p server.Problem
		_ = json.Unmarshal([]byte(a.body), &p)
		if a.status != c.status || p.Code != c.code || len(p.Detail) > 600 {
			t.Errorf("%.80q: got %d %s (%s), want %d %s", c.body, a.status, p.Code, p.Detail, c.status, c.code)
		}
	}
	s.do("POST", task, `{"kind":"a"}`, "Content-Type", "text/plain").problem(t, 415, "unsupported_media_type")
	s.do("POST", task, `{"kind":"a"}`, "Content-Encoding", "gzip").problem(t, 415, "unsupported_encoding")
	s.do("GET", task+"/nonsense", nil).problem(t, 400, "invalid_id")
	s.do("POST", "/api/v1/tasks/edit", `{"ids":["nonsense"],"action":"retry"}`).problem(t, 400, "invalid_id")
	s.do("POST", "/api/v1/tasks/edit", object{"ids": []string{tusk.NewID().String()}, "action": "explode"}).problem(t, 400,
		"invalid_action")
	s.do("PATCH", task, nil).problem(t, 405, "method_not_allowed")
	s.do("GET", "/api/v1/nothing", nil).problem(t, 404, "not_found")
	s.do("GET", "/api//v1/tasks", nil).problem(t, 404, "not_found")
	s.do("GET", "/api/v1/../v1/tasks", nil).problem(t, 404, "not_found")
	s.do("GET", "/api/v1/%2e%2e/v1/tasks", nil).problem(t, 404, "not_found")
	if tasks, err := s.client.List(t.Context(), tusk.Filter{}); err != nil || len(tasks) != 0 {
		t.Error("something was stored", tasks, err)
	}
}

func TestRefusalsNameTheFieldAndTheLimit(t *testing.T) {
	s := start(t)
	for body, want := range map[string][2]string{
		`{"kind":"a","run_at":"1970-01-01T00:00:00Z"}`: {"run_at", "1971"},
		`{"kind":"a","max_attempts":1001}`:             {"max_attempts", "1 to 1000"},
		`{"kind":"a","priority":40000}`:                {"priority", "-32768 to 32767"},
		`{"kind":"a","priority":1.5}`:                  {"priority", "whole number"},
		`{"kind":"a","prioriti":1}`:                    {"prioriti", "did you mean priority?"},
		`{"kind":"a","backoff":{"shap":"linear"}}`:     {"backoff.shap", "did you mean shape?"},
		`{"kind":"a","delay":"87601h"}`:                {"delay", "3650d"},
	} {
		var p server.Problem
		_ = json.Unmarshal([]byte(s.do("POST", "/api/v1/tasks", body).body), &p)
		if p.Field != want[0] || !strings.Contains(p.Detail, want[1]) {
			t.Errorf("%s: %q: %s", body, p.Field, p.Detail)
		}
	}
	if p := s.do("GET", "/api/v1/tasks?stat=available", nil).problem(t, 400, "unknown_parameter"); p.Field != "stat" ||
		!strings.Contains(p.Detail, "did you mean state?") {
		t.Errorf("%q: %s", p.Field, p.Detail)
	}
}
