package server_test

import (
	"strings"
	"testing"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server"
)

// TestA400IsForWhatTheDescriptionForbids sends invalid values. The status depends on whether the description allows
// them, not on which part of Tusk rejects them.
func TestA400IsForWhatTheDescriptionForbids(t *testing.T) {
	s := start(t)
	deep := strings.Repeat("[", 66) + strings.Repeat("]", 66)
	umlauts := strings.Repeat("ä", 200) // 400 bytes
	long := strings.Repeat("a", 60)
	for _, c := range []struct {
		method, path, body string
		status             int
		code               string
	}{
		// The description allows these.
		{"POST", "/tasks/batch", `{"tasks":[{"kind":"k"},{"kind":"k","delay":"99999h"}]}`, 422, "invalid_batch"},
		{"POST", "/tasks/batch", `{"tasks":[{"kind":"k"},{"kind":"k","args":"` + strings.Repeat("x", 300<<10) + `"}]}`, 422,
			"invalid_batch"},
		{"POST", "/tasks", `{"kind":"k","delay":"99999h"}`, 422, "out_of_range"},
		{"POST", "/tasks", `{"kind":"k","key":"` + umlauts + `"}`, 422, "too_long"},
		{"POST", "/tasks", `{"kind":"k","tags":["` + strings.Repeat("ä", 60) + `"]}`, 422, "invalid_tag"},
		{"POST", "/tasks", `{"kind":"k","args":` + deep + `}`, 422, "json_too_complex"},
		{"POST", "/tasks", `{"kind":"k","args":"\u0000"}`, 422, "nul_not_allowed"},
		{"POST", "/tasks", `{"kind":"k","run_at":"2026-12-31T23:59:60Z"}`, 422, "invalid_time"},
		{"POST", "/tasks", `{"kind":"k","args":{},"unique":{"args":["customer"]}}`, 422, "unknown_field"},
		{"PUT", "/pipelines/" + long, `{"stages":[{"name":"` + long + `"}]}`, 422, "invalid_name"},
		{"PUT", "/pipelines/p", `{"stages":[{"name":"a"},{"name":"a"}]}`, 422, "duplicate_stage"},
		{"POST", "/workflows", `{"tasks":[{"name":"a","kind":"k","deadline":"2026-12-31T23:59:60Z"}]}`, 422, "invalid_time"},
		{"POST", "/tasks/edit", `{"ids":["` + (tusk.ID{}).String() + `"],"action":"move"}`, 422, "missing_field"},
		{"POST", "/tasks/edit", `{"ids":["` + tusk.NewID().String() + `"],"action":"move"}`, 422, "missing_field"},
		{"POST", "/tasks/edit", `{"ids":["` + tusk.NewID().String() + `"],"action":"cancel","reason":"` +
			strings.Repeat("ä", 600) + `"}`, 422, "too_long"},
		{"GET", "/tasks?kind=" + strings.Repeat("%C3%A4", 200), "", 422, "too_long"},
		{"GET", "/tasks?from=2026-01-01T00:00:00." + strings.Repeat("0", 60) + "Z", "", 422, "invalid_parameter"},
		{"GET", "/tasks?from=2026-02-31", "", 422, "invalid_time"},
		{"GET", "/tasks?from=1h&until=2h", "", 422, "out_of_range"},

		// The description forbids these.
		{"POST", "/tasks/batch", `{"tasks":[{"kind":"k","delay":"99999h"},{"kind":"K"}]}`, 400, "invalid_batch"},
		{"POST", "/tasks", `{"kind":"k","delay":"eleven years"}`, 400, "invalid_duration"},
		{"POST", "/tasks", `{"kind":"k","key":"` + strings.Repeat("x", 256) + `"}`, 400, "too_long"},
		{"POST", "/tasks", `{"kind":"k","tags":[""]}`, 400, "invalid_tag"},
		{"POST", "/tasks", `{"kind":"k","priority":0.5}`, 400, "number_out_of_range"},
		{"PUT", "/pipelines/P", `{"stages":[{"name":"a"}]}`, 400, "invalid_name"},
		{"PUT", "/pipelines/p", `{"stages":[{"name":"a","backoff":{"jitter":2}}]}`, 400, "out_of_range"},
		{"PUT", "/limits/q?create=true", `{"tenants":{"A B":{"concurrency":1}}}`, 400, "invalid_name"},
		{"GET", "/tasks?kind=%00", "", 400, "invalid_text"},
		{"GET", "/tasks?kind=%ff", "", 400, "invalid_utf8"},
		{"GET", "/tasks?from=yesterday", "", 400, "invalid_time"},
		{"GET", "/tasks?from=", "", 400, "invalid_time"},
		{"GET", "/audit?since=", "", 400, "invalid_time"},
		{"POST", "/tasks", `{"kind":"k","delay":"` + strings.Repeat("1ms", 22) + `"}`, 400, "invalid_duration"},
		{"POST", "/tasks", `{"kind":"k","delay":"+5m"}`, 400, "invalid_duration"},
		{"POST", "/workflows", `{"tasks":[{"name":"a","kind":"k","timeout":""}]}`, 400, "invalid_duration"},
		{"POST", "/bulk", `{"action":"retry","filter":{"from":""}}`, 400, "invalid_time"},
		{"DELETE", "/limits/A,B", "", 400, "invalid_name"},
		{"GET", "/tasks?limit=ten", "", 400, "invalid_parameter"},
		{"GET", "/tasks?limit=1001", "", 400, "out_of_range"},
	} {
		var body any
		if c.body != "" {
			body = c.body
		}
		if a := s.do(c.method, "/api/v1"+c.path, body); a.status != c.status ||
			!strings.Contains(a.body, `"code":"`+c.code+`"`) {
			t.Errorf("%s %.60s %.80s: %d %.300s, want %d %s", c.method, c.path, c.body, a.status, a.body, c.status, c.code)
		}
	}
	s.do("POST", "/api/v1/tasks", `{"kind":"k"}`, "Idempotency-Key", "").problem(t, 400, "invalid_header")
	s.do("POST", "/api/v1/tasks", `{"kind":"k"}`, "Idempotency-Key", umlauts).problem(t, 422, "too_long")
	s.do("POST", "/api/v1/tasks", `{"kind":"k"}`, "Idempotency-Key", strings.Repeat("x", 256)).problem(t, 400, "too_long")
	if p := s.do("POST", "/api/v1/tasks/batch", `{"tasks":[{"kind":"k","delay":"99999h"},{"kind":"ok"},{"kind":"K"}]}`).
		problem(t, 400, "invalid_batch"); len(p.Items) != 2 {
		t.Errorf("not all that is wrong is told: %+v", p.Items)
	}
}

// TestABadItemOfALeaseBatchFailsAlone also covers items that the description forbids.
func TestABadItemOfALeaseBatchFailsAlone(t *testing.T) {
	s := start(t)
	s.do("POST", "/api/v1/tasks", `{"kind":"k"}`).want(t, 201, nil)
	var lent server.LeasedTasks
	s.do("POST", "/api/v1/lease", `{"queues":["default"],"wait":"10s"}`).want(t, 200, &lent)
	var out server.LeaseResults
	s.do("POST", "/api/v1/lease/batch", object{"items": []object{{"action": "complete", "lease_id": "nonsense"},
		{"action": "explode", "lease_id": lent.Tasks[0].LeaseID},
		{"action": "extend", "lease_id": lent.Tasks[0].LeaseID, "progress": object{"percent": -1}},
		{"action": "complete", "lease_id": lent.Tasks[0].LeaseID, "go_to": "A B"},
		{"action": "complete", "lease_id": lent.Tasks[0].LeaseID}}}).want(t, 200, &out)
	if r := out.Results; r[0].Code != "invalid_id" || r[1].Code != "invalid_action" || r[2].Code != "out_of_range" ||
		r[3].Code != "invalid_name" || !r[4].OK {
		t.Errorf("%+v", r)
	}
	one := lent.Tasks[0].LeaseID
	s.do("POST", "/api/v1/lease/extend", object{"lease_id": one, "progress": object{"percent": 101}}).problem(t, 400,
		"out_of_range")
	s.do("POST", "/api/v1/lease/complete", object{"lease_id": one, "go_to": "A B"}).problem(t, 400, "invalid_name")
}
