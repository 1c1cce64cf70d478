package server_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server"
	"github.com/tuskqueue/tusk/server/access"
)

func TestQueuesSchedulesStatsAndTheRest(t *testing.T) {
	s, f := filled(t)
	var q server.Queue
	s.do("POST", "/api/v1/queues/mail/pause", nil).want(t, 200, &q)
	if !q.Paused {
		t.Error(q)
	}
	s.do("POST", "/api/v1/queues/mail/resume", nil).want(t, 200, &q)
	s.do("GET", "/api/v1/queues/archive", nil).want(t, 200, &q)
	if !q.Paused || q.Tasks["available"] != 12 {
		t.Error(q)
	}
	s.do("GET", "/api/v1/queues/none", nil).problem(t, 404, "not_found")
	s.do("POST", "/api/v1/queues/NO/pause", nil).problem(t, 400, "invalid_name")
	s.do("PUT", "/api/v1/queues/mail/aging", object{"every": "5m", "to": -10}).want(t, 200, &q)
	if q.Aging == nil || time.Duration(q.Aging.Every) != 5*time.Minute || q.Aging.To != -10 || q.Paused {
		t.Errorf("%+v", q)
	}
	eventually(t, func() bool {
		return strings.Contains(s.do("GET", "/queues", nil).want(t, 200, nil).body, "rises every 5 min")
	})
	s.do("PUT", "/api/v1/queues/mail/aging", object{"every": "1ms"}).problem(t, 422, "out_of_range")
	s.do("PUT", "/api/v1/queues/mail/aging", object{"to": 1}).problem(t, 400, "missing_field")
	q = server.Queue{}
	s.do("DELETE", "/api/v1/queues/mail/aging", nil).want(t, 200, &q)
	if q.Aging != nil {
		t.Errorf("%+v", q.Aging)
	}
	s.post("/queues", form("queue", "mail", "every", "1h", "to", "7")).want(t, 303, nil)
	s.do("GET", "/api/v1/queues/mail", nil).want(t, 200, &q)
	if q.Aging == nil || time.Duration(q.Aging.Every) != time.Hour || q.Aging.To != 7 {
		t.Errorf("%+v", q)
	}
	for _, bad := range []string{form("queue", "mail", "every", "soon"), form("queue", "mail", "every", "1h", "to", "x"),
		form("queue", "NO", "every", "1h")} {
		s.post("/queues", bad).want(t, 400, nil)
	}
	s.post("/queues", form("queue", "mail", "every", "90")).want(t, 303, nil)
	if s.do("GET", "/api/v1/queues/mail", nil).want(t, 200, &q); q.Aging == nil ||
		time.Duration(q.Aging.Every) != 90*time.Second {
		t.Errorf("%+v", q)
	}
	s.post("/queues", form("queue", "mail", "every", "")).want(t, 303, nil)
	q = server.Queue{}
	if s.do("GET", "/api/v1/queues/mail", nil).want(t, 200, &q); q.Aging != nil {
		t.Errorf("%+v", q.Aging)
	}

	var sched server.Schedule
	s.do("PUT", "/api/v1/schedules/tidy", object{"spec": "*/10 * * * *", "zone": "Asia/Tokyo", "kind": "tidy",
		"jitter": "3s", "missed": "all", "cap": 5, "weight": 3, "deadline_in": "2h", "ephemeral": true,
		"metadata": object{"m": "1"}}).want(t, 200, &sched)
	if sched.Words == "" || sched.Zone != "Asia/Tokyo" || sched.Missed != "all" {
		t.Errorf("%+v", sched)
	}
	s.do("POST", "/api/v1/schedules/tidy/pause", nil).want(t, 200, &sched)
	s.do("POST", "/api/v1/schedules/tidy/resume", nil).want(t, 200, &sched)
	var e server.EnqueuedTask
	// The form keeps what it does not show.
	s.post("/new-schedule", form("name", "tidy", "spec", "*/10 * * * *", "zone", "Asia/Tokyo", "kind", "tidy", "args",
		"{}", "missed", "all", "timeout", "9s")).want(t, 303, nil)
	s.do("POST", "/api/v1/schedules/tidy/run", nil).want(t, 200, &e)
	if d := s.task(e.ID); d.Weight != 3 || !d.Ephemeral || d.Deadline.Sub(d.EnqueuedAt) != 2*time.Hour ||
		d.Metadata["m"] != "1" || time.Duration(d.Timeout) != 9*time.Second {
		t.Errorf("%+v", d)
	}
	if s.do("GET", "/api/v1/schedules/tidy", nil).want(t, 200, &sched); sched.Cap != 5 {
		t.Errorf("%+v", sched)
	}
	var ticks server.Ticks
	s.do("GET", "/api/v1/schedules/tidy/next?count=5", nil).want(t, 200, &ticks)
	if len(ticks.Ticks) != 5 || ticks.Ticks[1].Sub(ticks.Ticks[0]) != 10*time.Minute {
		t.Error(ticks)
	}
	// This asks for confirmation.
	page := s.post("/schedules/tidy/backfill", form("from", "2026-01-31", "until", "2026-01-31T01:00")).want(t,
		200, nil).body
	if !strings.Contains(page, "6 ticks of tidy") || !strings.Contains(page, "2026-01-31 00:50:00.000 UTC") {
		t.Error("the page does not say what it would enqueue", page)
	}
	before := countOf(t, s, "tidy")
	s.post("/schedules/tidy/backfill", form("from", "2026-01-31T00:00:00Z", "until", "2026-01-31T01:00:00Z", "confirm",
		"yes")).want(t, 303, nil)
	if n := countOf(t, s, "tidy") - before; n != 6 {
		t.Errorf("%d tasks for 6 ticks", n)
	}
	for _, bad := range []string{"", form("from", "x"), form("from", "1h", "until", "2h"),
		form("from", "1h", "until", "9999-01-01"), form("from", "2026-01-31", "until", "2026-01-31T00:00"),
		form("from", "2026-01-31T00:01", "until", "2026-01-31T00:02"), form("from", "1970-01-01")} {
		s.post("/schedules/tidy/backfill", bad).want(t, 400, nil)
	}
	s.do("PUT", "/api/v1/schedules/bad", object{"spec": "0 0 31 2 *", "kind": "x"}).problem(t, 422, "invalid_cron")
	s.do("PUT", "/api/v1/schedules/bad", object{"spec": "@daily", "zone": "Mars/Phobos", "kind": "x"}).problem(t, 422,
		"invalid_cron")
	s.do("PUT", "/api/v1/schedules/bad", object{"spec": strings.Repeat("1,", 5000), "kind": "x"}).problem(t, 400,
		"invalid_cron")
	s.do("DELETE", "/api/v1/schedules/tidy", nil).want(t, 204, nil)
	s.do("GET", "/api/v1/schedules/tidy", nil).problem(t, 404, "not_found")

	var stats server.StatList
	s.do("GET", "/api/v1/stats?queue=mail", nil).want(t, 200, &stats)
	if len(stats.Stats) == 0 || stats.Stats[0].Ran.P95 <= 0 {
		t.Errorf("%+v", stats)
	}
	s.do("GET", "/api/v1/stats?bucket=minute&from=2000h", nil).problem(t, 422, "out_of_range")
	s.do("GET", "/api/v1/stats?bucket=second", nil).problem(t, 400, "invalid_parameter")
	var workers server.WorkerList
	s.do("GET", "/api/v1/workers", nil).want(t, 200, &workers)
	if len(workers.Workers) == 0 {
		t.Error(workers)
	}
	var groups server.ErrorList
	s.do("GET", "/api/v1/errors?limit=1", nil).want(t, 200, &groups)
	if len(groups.Errors) != 1 || !groups.More {
		t.Errorf("%+v", groups)
	}
	s.do("GET", "/api/v1/errors?kind=charge_card", nil).want(t, 200, &groups)
	if len(groups.Errors) != 1 || groups.More || groups.Errors[0].Dead != 4 || groups.Errors[0].Waiting != 8 {
		t.Fatalf("%+v", groups)
	}
	if err := s.client.PauseQueue(t.Context(), "default"); err != nil { // so that retried tasks wait
		t.Fatal(err)
	}
	var o server.Bulk
	s.do("POST", "/api/v1/errors/"+groups.Errors[0].Fingerprint+"/retry", nil).want(t, 202, &o)
	eventually(t, func() bool {
		s.do("GET", "/api/v1/bulk/"+o.ID, nil).want(t, 200, &o)
		return o.State == "done"
	})
	if o.Changed != 12 {
		t.Errorf("%+v", o)
	}
	var d server.TaskDetail
	s.do("GET", "/api/v1/tasks/"+f.Completed.String(), nil).want(t, 200, &d)
	if len(d.Attempts) != 1 || len(d.Logs) != 2 || d.Output == nil ||
		strings.Contains(string(d.Output)+string(d.Args), "canary") {
		t.Errorf("%+v", d)
	}
	for _, path := range []string{"/healthz", "/readyz", "/openapi.json"} {
		s.as("", "GET", path, nil).want(t, 200, nil)
	}
}

func TestAQueueKeepsItsFinishedTasksForATimeOfItsOwn(t *testing.T) {
	s, _ := filled(t)
	of := func(queue string) *server.Retention {
		t.Helper()
		var q server.Queue
		s.do("GET", "/api/v1/queues/"+queue, nil).want(t, 200, &q)
		return q.Retention
	}
	s.do("PUT", "/api/v1/queues/mail/retention", object{"completed": "10m", "discarded": "forever"}).want(t, 200, nil)
	if r := of("mail"); r == nil || time.Duration(r.Completed) != 10*time.Minute || r.Cancelled != 0 ||
		time.Duration(r.Discarded) != tusk.Forever {
		t.Errorf("%+v", r)
	}
	if page := s.do("GET", "/queues?edit=mail", nil).want(t, 200, nil).body; !strings.Contains(page,
		"keeps completed 10 min, discarded forever") ||
		!strings.Contains(page, `value="10m"`) || !strings.Contains(page, `value="forever"`) {
		t.Error("the page says otherwise")
	}
	s.do("PUT", "/api/v1/queues/mail/retention", object{}).problem(t, 400, "missing_field")
	s.do("PUT", "/api/v1/queues/mail/retention", object{"completed": "1ms"}).problem(t, 422, "out_of_range")
	s.do("PUT", "/api/v1/queues/mail/retention", object{"completed": "-1h"}).problem(t, 400, "invalid_duration")
	s.do("PUT", "/api/v1/queues/mail/retention", object{"failed": "1h"}).problem(t, 400, "unknown_field")
	s.do("DELETE", "/api/v1/queues/mail/retention", nil).want(t, 200, nil)
	if r := of("mail"); r != nil {
		t.Errorf("%+v", r)
	}
	s.post("/queues/retention", form("queue", "mail", "completed", "30d", "cancelled", "90m", "discarded",
		"forever")).want(t, 303, nil)
	if r := of("mail"); r == nil || time.Duration(r.Completed) != 720*time.Hour ||
		time.Duration(r.Cancelled) != 90*time.Minute || time.Duration(r.Discarded) != tusk.Forever {
		t.Errorf("%+v", r)
	}
	for _, bad := range []string{"soon", "-1h", "xd", "99999999d", "1ms"} {
		if a := s.post("/queues/retention", form("queue", "mail", "completed", bad)); a.status != 400 && a.status != 422 {
			t.Errorf("%s: %d", bad, a.status)
		}
	}
	s.post("/queues/retention", form("queue", "mail")).want(t, 303, nil)
	if r := of("mail"); r != nil {
		t.Errorf("%+v", r)
	}
	operator := s.tokenFor(access.Token{Name: "o", Role: access.Operator})
	s.as(operator, "PUT", "/api/v1/queues/mail/retention", object{"completed": "10m"}).problem(t, 403, "forbidden")
	tenants := s.tokenFor(access.Token{Name: "t", Role: access.Admins, Tenants: []string{"acme"}})
	s.as(tenants, "PUT", "/api/v1/queues/mail/retention", object{"completed": "10m"}).problem(t, 403, "forbidden")
	log := s.do("GET", "/api/v1/audit", nil).want(t, 200, nil).body
	if !strings.Contains(log, `"queues.keep"`) {
		t.Error("the audit log does not tell")
	}
}
