package server_test

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server"
	"github.com/tuskqueue/tusk/server/access"
)

type object = map[string]any

func TestATaskGoesThroughTheAPI(t *testing.T) {
	s := start(t)
	var e server.EnqueuedTask
	s.do("POST", "/api/v1/tasks",
		`{"kind":"send_email","args":{"big":12345678901234567890.10},"queue":"mail","tags":["a"],"metadata":{"m":"1"}, "priority":-5,"max_attempts":3,"timeout":"90s","backoff":{"shape":"linear","base":"5m"},"delay":"1h","key":"k1","partition":"p","weight":7,"deadline_in":"3h","ephemeral":true}`).want(t, 201, &e)
	if e.Result != "added" || e.Duplicate {
		t.Error(e)
	}
	var d server.TaskDetail
	s.do("GET", "/api/v1/tasks/"+e.ID, nil).want(t, 200, &d)
	if d.State != "scheduled" || string(d.Args) != `{"big":12345678901234567890.10}` || d.Priority != -5 ||
		d.MaxAttempts != 3 || time.Duration(d.Timeout) != 90*time.Second ||
		d.Key != "k1" || d.Partition != "p" || d.Weight != 7 || !d.Ephemeral || d.Deadline.Sub(d.EnqueuedAt) != 3*time.Hour ||
		d.Metadata["m"] != "1" || d.Attempts == nil {
		t.Errorf("%+v", d)
	}
	var again server.EnqueuedTask
	s.do("POST", "/api/v1/tasks", object{"kind": "send_email", "queue": "mail", "key": "k1"}).want(t, 200, &again)
	if again.ID != e.ID || !again.Duplicate || again.Result != "skipped" {
		t.Error(again)
	}
	path := "/api/v1/tasks/" + e.ID
	s.do("POST", path+"/reprioritize", object{"priority": 7}).want(t, 200, nil)
	s.do("POST", path+"/move", object{"queue": "other"}).problem(t, 404, "unknown_queue")
	s.do("POST", path+"/move", object{"queue": "other", "create": true}).want(t, 200, nil)
	s.do("POST", path+"/reschedule", object{"delay": "2h"}).want(t, 200, nil)
	var edited server.Edited
	s.do("POST", path+"/retry", nil).want(t, 200, &edited)
	if edited.State != "available" {
		t.Error(edited)
	}
	s.do("POST", path+"/cancel", object{"reason": "not needed"}).want(t, 200, &edited)
	s.do("POST", path+"/cancel", nil).problem(t, 409, "invalid_state")
	s.do("GET", path, nil).want(t, 200, &d)
	if d.Changed == nil || d.Changed.How != "retried" || d.Changed.At.Before(d.EnqueuedAt) {
		t.Errorf("%+v", d.Changed)
	}
	if d.State != "cancelled" || d.Reason != "not needed" || d.Queue != "other" || d.Priority != 7 {
		t.Errorf("%+v", d)
	}
	s.do("DELETE", path, nil).want(t, 200, nil)
	s.do("GET", path, nil).problem(t, 404, "not_found")
	s.do("DELETE", path, nil).problem(t, 404, "not_found")
}

func TestListsArePages(t *testing.T) {
	s := start(t)
	var batch []object
	for i := range 25 {
		batch = append(batch, object{"kind": "k", "queue": fmt.Sprintf("q%d", i%2), "args": i})
	}
	var results server.EnqueuedBatch
	s.do("POST", "/api/v1/tasks/batch", object{"tasks": batch}).want(t, 201, &results)
	if len(results.Results) != 25 {
		t.Fatal(results)
	}
	seen, cursor := 0, ""
	for {
		var page server.TaskPage
		s.do("GET", "/api/v1/tasks?queue=q0&limit=5&cursor="+cursor, nil).want(t, 200, &page)
		seen += len(page.Tasks)
		if cursor = page.Next; cursor == "" {
			break
		}
		s.do("GET", "/api/v1/tasks?queue=q1&limit=5&cursor="+cursor, nil).problem(t, 422, "invalid_cursor")
	}
	if seen != 13 {
		t.Errorf("saw %d of 13", seen)
	}
	for _, bad := range []string{"limit=-1", "limit=1001", "limit=x", "cursor=%00", "cursor=AAAA", "state=done",
		"from=yesterday", "nonsense=1"} {
		if a := s.do("GET", "/api/v1/tasks?"+bad, nil); a.status != 400 && a.status != 422 {
			t.Errorf("%s: %d", bad, a.status)
		}
	}
	lines := strings.Split(strings.TrimSpace(s.do("GET", "/api/v1/tasks/export?queue=q1", nil).want(t, 200, nil).body),
		"\n")
	if len(lines) != 12 || !json.Valid([]byte(lines[3])) {
		t.Error(len(lines))
	}
	rows, err := csv.NewReader(strings.NewReader(s.do("GET", "/api/v1/tasks/export?format=csv", nil).want(t, 200,
		nil).body)).ReadAll()
	if err != nil || len(rows) != 26 {
		t.Error(len(rows), err)
	}
}

func TestAnIdempotencyKeyStoresOnce(t *testing.T) {
	s := start(t)
	body := `{"kind":"pay","args":{"order":1}}`
	var first, second server.EnqueuedTask
	s.do("POST", "/api/v1/tasks", body, "Idempotency-Key", "k").want(t, 201, &first)
	a := s.do("POST", "/api/v1/tasks", body, "Idempotency-Key", "k").want(t, 201, &second)
	if first != second || a.header.Get("Idempotency-Replayed") != "true" {
		t.Error(first, second)
	}
	s.do("POST", "/api/v1/tasks", `{"kind":"pay","args":{"order":2}}`, "Idempotency-Key", "k").problem(t, 409,
		"idempotency_conflict")
	// Many at once store one task.
	done := make(chan string)
	for range 20 {
		go func() {
			var e server.EnqueuedTask
			a := s.do("POST", "/api/v1/tasks", body, "Idempotency-Key", "race")
			_ = json.Unmarshal([]byte(a.body), &e)
			done <- e.ID
		}()
	}
	ids := map[string]bool{}
	for range 20 {
		ids[<-done] = true
	}
	if len(ids) != 1 {
		t.Errorf("%d tasks for one key: %v", len(ids), ids)
	}
	tasks, err := s.client.List(t.Context(), filterKind("pay"))
	if err != nil || len(tasks) != 2 {
		t.Error(len(tasks), err)
	}
	// A key that is taken is answered the same the second time.
	s.do("POST", "/api/v1/tasks", `{"kind":"x","key":"natural"}`).want(t, 201, &first)
	s.do("POST", "/api/v1/tasks", `{"kind":"x","key":"natural"}`, "Idempotency-Key", "n").want(t, 200, &second)
	if s.do("POST", "/api/v1/tasks", `{"kind":"x","key":"natural"}`, "Idempotency-Key", "n").want(t, 200,
		&second); second.ID != first.ID {
		t.Error(first, second)
	}
}

func TestABatchIsAllOrNothing(t *testing.T) {
	s := start(t)
	p := s.do("POST", "/api/v1/tasks/batch",
		`{"tasks":[{"kind":"ok"},{"kind":"Bad Kind"},{"kind":"ok","queue":"../x"}]}`).problem(t, 400, "invalid_batch")
	if len(p.Items) != 2 {
		t.Errorf("%+v", p.Items)
	}
	if p := s.do("POST", "/api/v1/tasks/batch", `{"tasks":[{"kind":"ok"},{"args":1}]}`).problem(t, 400,
		"missing_field"); p.Field != "tasks[1].kind" {
		t.Errorf("%+v", p)
	}
	if p := s.do("POST", "/api/v1/tasks/batch", `{"tasks":[{"kind":"ok"},null]}`).problem(t, 400,
		"null_not_allowed"); p.Field != "tasks[1]" {
		t.Errorf("%+v", p)
	}
	s.do("POST", "/api/v1/tasks/batch", `{"tasks":[]}`).problem(t, 400, "missing_field")
	s.do("POST", "/api/v1/tasks/batch", `{"tasks":[`+strings.Repeat(`{"kind":"k"},`, 1000)+`{"kind":"k"}]}`).problem(t,
		413, "batch_too_large")
	if tasks, err := s.client.List(t.Context(), tusk.Filter{}); err != nil || len(tasks) != 0 {
		t.Error("something was stored", tasks, err)
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
	// asks first
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
	if err := s.client.PauseQueue(t.Context(), "default"); err != nil { // so that what is retried waits
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

func TestBulkOperationsReachEveryPageAndStop(t *testing.T) {
	s := start(t)
	var batch []tusk.NewTask
	for range 1800 {
		batch = append(batch, tusk.NewTask{Args: later{}})
	}
	if _, err := s.client.EnqueueMany(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	var o server.Bulk
	s.do("POST", "/api/v1/bulk", object{"filter": object{"kind": []string{"later"}}, "action": "cancel"}).want(t, 202, &o)
	eventually(t, func() bool {
		s.do("GET", "/api/v1/bulk/"+o.ID, nil).want(t, 200, &o)
		return o.State != "running"
	})
	if o.State != "done" || o.Changed != 1800 || o.Seen != 1800 {
		t.Errorf("%+v", o)
	}
	s.do("POST", "/api/v1/bulk/"+o.ID+"/cancel", nil).want(t, 200, &o) // too late, and no harm
	s.do("GET", "/api/v1/bulk/nonsense", nil).problem(t, 400, "invalid_id")
	s.do("GET", "/api/v1/bulk/"+tusk.NewID().String(), nil).problem(t, 404, "not_found")
	s.do("POST", "/api/v1/bulk", object{"filter": object{"state": []string{"nonsense"}}, "action": "cancel"}).problem(t,
		400, "invalid_state_name")
}

func countOf(t *testing.T, s *site, kind string) int {
	t.Helper()
	tasks, err := s.client.List(t.Context(), filterKind(kind))
	if err != nil {
		t.Fatal(err)
	}
	return len(tasks)
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

func TestRefusalsNameTheFieldAndTheLimit(t *testing.T) {
	s := start(t)
	for body, want := range map[string][2]string{
		`{"kind":"a","run_at":"1970-01-01T00:00:00Z"}`: {"run_at", "1971"},
		`{"kind":"a","max_attempts":1001}`:             {"max_attempts", "1 to 1000"},
		`{"kind":"a","priority":40000}`:                {"priority", "-32768 to 32767"},
		`{"kind":"a","priority":1.5}`:                  {"priority", "whole number"},
		`{"kind":"a","delay":"87601h"}`:                {"delay", "3650d"},
	} {
		var p server.Problem
		_ = json.Unmarshal([]byte(s.do("POST", "/api/v1/tasks", body).body), &p)
		if p.Field != want[0] || !strings.Contains(p.Detail, want[1]) {
			t.Errorf("%s: %q: %s", body, p.Field, p.Detail)
		}
	}
}
