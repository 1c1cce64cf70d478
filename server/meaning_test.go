package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server"
)

func TestABulkChangeOfEverythingHasToBeMeant(t *testing.T) {
	s := start(t)
	for range 3 {
		s.do("POST", "/api/v1/tasks", object{"kind": "k"}).want(t, 201, nil)
	}
	for _, body := range []string{`{"action":"delete"}`, `{"action":"delete","filter":null}`,
		`{"action":"delete","all":true}`, `null`} {
		if a := s.do("POST", "/api/v1/bulk", body); a.status != 400 {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	s.do("POST", "/api/v1/bulk", `{"action":"delete","filter":{}}`).problem(t, 422, "all_or_filter")
	s.do("POST", "/api/v1/bulk", `{"action":"delete","filter":{"queue":["default"]},"all":true}`).problem(t, 422,
		"all_or_filter")
	if tasks, err := s.client.List(t.Context(), tusk.Filter{}); err != nil || len(tasks) != 3 {
		t.Fatalf("%d tasks are left of 3: %v", len(tasks), err)
	}
	var o server.Bulk
	s.do("POST", "/api/v1/bulk", `{"action":"delete","filter":{},"all":true}`).want(t, 202, &o)
	eventually(t, func() bool {
		s.do("GET", "/api/v1/bulk/"+o.ID, nil).want(t, 200, &o)
		return o.State == "done" && o.Changed == 3
	})
}

func TestABodyOfNullIsRefusedByEveryRoute(t *testing.T) {
	s := start(t)
	s.do("PUT", "/api/v1/limits/q?create=true", object{"concurrency": 3}).want(t, 200, nil)
	for _, r := range server.Routes() {
		if r.Method == "GET" || r.Method == "DELETE" || strings.Contains(r.Path, "{id}") {
			continue
		}
		path := strings.ReplaceAll(filledPath(r.Path), "default", "q")
		if a := s.do(r.Method, path, "null"); a.status == 200 && !strings.Contains(path, "/pause") &&
			!strings.Contains(path, "/resume") || a.status >= 500 {
			t.Errorf("%s %s: %d", r.Method, path, a.status)
		}
	}
	var l server.QueueLimits
	if s.do("GET", "/api/v1/limits/q", nil).want(t, 200, &l); l.Limits.Concurrency != 3 {
		t.Errorf("%+v", l)
	}
	s.do("POST", "/api/v1/lease/batch", `{"items":[null]}`).problem(t, 400, "null_not_allowed")
	s.do("POST", "/api/v1/lease/batch", `{"items":[]}`).problem(t, 400, "missing_field")
	s.do("POST", "/api/v1/tasks/edit", `{"ids":[],"action":"retry"}`).problem(t, 400, "missing_field")
}

func TestADurationMayBeANumberOfSeconds(t *testing.T) {
	s := start(t)
	var e server.EnqueuedTask
	s.do("POST", "/api/v1/tasks", `{"kind":"k","delay":60,"timeout":1.5}`).want(t, 201, &e)
	var d server.TaskDetail
	if s.do("GET", "/api/v1/tasks/"+e.ID, nil).want(t, 200, &d); time.Duration(d.Timeout) != 1500*time.Millisecond ||
		d.RunAt.Sub(d.EnqueuedAt) < 59*time.Second {
		t.Errorf("%+v", d)
	}
	s.do("POST", "/api/v1/lease", `{"queues":["none"],"wait":0,"lease":20}`).want(t, 200, nil)
	s.do("POST", "/api/v1/workflows", `{"tasks":[{"name":"a","kind":"k","delay":60,"timeout":"5m"}]}`).want(t, 201, nil)
	s.do("PUT", "/api/v1/queues/default/retention?create=true", `{"completed":3600,"discarded":"forever"}`).want(
		t, 200, nil)
	if p := s.do("POST", "/api/v1/tasks", `{"kind":"k","delay":true}`).problem(t, 400,
		"invalid_type"); p.Detail != "want text or a number, not true or false" || p.Field != "delay" {
		t.Errorf("%+v", p)
	}
}

// TestEveryEngineRefusesBadTextInAQuery sends text that PostgreSQL cannot store but the other engines could.
func TestEveryEngineRefusesBadTextInAQuery(t *testing.T) {
	for name, open := range engines {
		t.Run(name, func(t *testing.T) {
			s := startOn(t, newClient(t, open(t)))
			for _, bad := range []string{"%00", "a%00b", "%ff", "%c0%80", "%ed%a0%80", "%C2%85", strings.Repeat("x", 300)} {
				for route, names := range map[string]string{"/api/v1/tasks": "kind tenant tag key fingerprint queue",
					"/api/v1/tasks/export": "kind tenant tag key fingerprint",
					"/api/v1/errors":       "queue kind", "/api/v1/stats": "queue kind", "/api/v1/audit": "who",
					"/tasks": "kind tenant tag key fingerprint queue", "/errors": "queue kind", "/audit": "who"} {
					for _, field := range strings.Fields(names) {
						a := s.do("GET", route+"?"+field+"="+bad, nil)
						if a.status >= 500 || a.status == 200 && strings.HasPrefix(route, "/api/") {
							t.Errorf("%s?%s=%.20s: %d", route, field, bad, a.status)
						}
					}
				}
			}
		})
	}
}

func TestABodyIsReadInLinearTime(t *testing.T) {
	s := start(t)
	nested := func(key, parts int) string {
		return `{"kind":"k","args":{"` + strings.Repeat("a", key) + `":[` + strings.TrimSuffix(strings.Repeat("1,", parts),
			",") + `]}}`
	}
	took := func(body string) time.Duration {
		begun := time.Now()
		if a := s.do("POST", "/api/v1/tasks", body); a.status != 413 {
			t.Fatalf("%d %.300s", a.status, a.body)
		}
		return time.Since(begun)
	}
	// Written out, the paths would be 4 TB of text.
	if long := took(nested(4<<20, 1000000)); long > 20*time.Second {
		t.Errorf("took %v", long)
	}
}

// TestTheDescriptionIsWhatIsHeldTo checks that nothing may be null, and that lists and names are limited.
func TestTheDescriptionIsWhatIsHeldTo(t *testing.T) {
	text, err := server.OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(text, []byte(`"null"`)) {
		t.Error("something may be null")
	}
	var doc struct {
		Components struct {
			Schemas map[string]struct {
				Required   []string
				Properties map[string]map[string]any
			}
		}
		Paths map[string]map[string]struct {
			Parameters []struct {
				Name   string
				Schema map[string]any
			}
		}
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	for field, want := range map[string]string{"TaskInput.kind": "pattern", "TaskInput.key": "maxLength",
		"TaskInput.delay": "anyOf", "TaskInput.max_attempts": "maximum",
		"TaskInput.tags": "maxItems", "BulkInput.per_second": "maximum", "EditInput.ids": "maxItems",
		"LeaseRequest.max": "maximum", "WorkflowTask.name": "pattern",
		"WorkflowTask.timeout": "anyOf", "Limits.concurrency": "maximum", "Limits.tenants": "maxProperties",
		"Tasks.from": "anyOf"} {
		schema, name, _ := strings.Cut(field, ".")
		if doc.Components.Schemas[schema].Properties[name][want] == nil {
			t.Errorf("%s: no %s in %v", field, want, doc.Components.Schemas[schema].Properties[name])
		}
	}
	for path, methods := range doc.Paths {
		for method, o := range methods {
			for _, p := range o.Parameters {
				if p.Schema["pattern"] == nil && p.Schema["maxLength"] == nil && p.Schema["maximum"] == nil &&
					p.Schema["enum"] == nil && p.Schema["anyOf"] == nil && p.Schema["maxItems"] == nil {
					t.Errorf("%s %s: %s has no bounds: %v", method, path, p.Name, p.Schema)
				}
			}
		}
	}
}

func TestAQueueMayHaveLimitsOfSoManyTenants(t *testing.T) {
	s := start(t)
	tenants := object{}
	for i := range 1001 {
		tenants[fmt.Sprint("t", i)] = object{"concurrency": 1}
	}
	p := s.do("PUT", "/api/v1/limits/q", object{"tenants": tenants}).problem(t, 413, "batch_too_large")
	if !strings.HasPrefix(p.Field, "tenants.") {
		t.Errorf("%+v", p)
	}
}

func TestAMisspeltQueueIsNotPaused(t *testing.T) {
	s := start(t)
	var e server.EnqueuedTask
	s.do("POST", "/api/v1/tasks", object{"kind": "k", "queue": "bills"}).want(t, 201, &e)
	for path, fields := range map[string]string{"/tasks/" + e.ID + "/move": form("to", "bilss"),
		"/tasks/selected": form("id", e.ID, "action", "move", "to", "bilss"),
		"/bulk":           form("query", "queue=bills", "action", "move", "to", "bilss")} {
		if page := s.post(path, fields).want(t, 200, nil).body; !strings.Contains(page,
			"The queue bilss is unknown") || s.task(e.ID).Queue != "bills" {
			t.Errorf("%s moved it without a question", path)
		}
	}
	for path, fields := range map[string]string{"/queues/bilss/pause": "",
		"/queues":           form("queue", "bilss", "every", "5m"),
		"/queues/retention": form("queue", "bilss", "completed", "5m"), "/limits": form("queue", "bilss", "concurrency", "3"),
		"/tenants/acme": form("queue", "bilss", "weight", "2")} {
		page := s.post(path, fields).want(t, 200, nil).body
		if !strings.Contains(page, "The queue bilss is unknown") {
			t.Errorf("%s sets it without a question", path)
		}
		if name, _, _ := strings.Cut(fields, "="); name != "" && !strings.Contains(page, `name="queue" value="bilss"`) {
			t.Errorf("%s: the question forgets the form", path)
		}
		s.do("GET", "/api/v1/queues/bilss", nil).problem(t, 404, "not_found")
		s.post(path, strings.TrimPrefix(fields+"&confirm=yes", "&")).want(t, 303, nil)
		s.do("DELETE", "/api/v1/queues/bilss", nil).want(t, 204, nil)
	}
	s.do("POST", "/api/v1/queues/bilss/resume", nil).problem(t, 404, "not_found")
	s.do("DELETE", "/api/v1/queues/bilss/aging", nil).problem(t, 404, "not_found")
	s.do("DELETE", "/api/v1/queues/bilss/retention", nil).problem(t, 404, "not_found")
	s.post("/queues", form("queue", "bilss", "every", "", "to", "7", "confirm", "yes")).want(t, 303, nil)
	s.do("GET", "/api/v1/queues/bilss", nil).problem(t, 404, "not_found")
	s.do("POST", "/api/v1/queues/bilss/pause", nil).problem(t, 404, "unknown_queue")
	s.do("PUT", "/api/v1/limits/bilss", object{"concurrency": 3}).problem(t, 404, "unknown_queue")
	s.do("PUT", "/api/v1/limits/bilss/tenants/acme", object{"weight": 2}).problem(t, 404, "unknown_queue")
	s.do("PUT", "/api/v1/queues/bilss/aging", object{"every": "5m"}).problem(t, 404, "unknown_queue")
	s.do("PUT", "/api/v1/queues/bilss/retention", object{"completed": "5m"}).problem(t, 404, "unknown_queue")
	move := object{"action": "move", "queue": "bilss", "filter": object{"queue": []string{"bills"}}}
	s.do("POST", "/api/v1/bulk", move).problem(t, 404, "unknown_queue")
	s.do("POST", "/api/v1/queues/bills/pause", nil).want(t, 200, nil)
	s.do("POST", "/api/v1/queues/bilss/pause?create=true", nil).want(t, 200, nil)
	s.do("DELETE", "/api/v1/queues/bilss", nil).want(t, 204, nil)
	s.do("GET", "/api/v1/queues/bilss", nil).problem(t, 404, "not_found")
	s.do("DELETE", "/api/v1/queues/bilss", nil).problem(t, 404, "not_found")
}
