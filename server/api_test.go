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
)

type object = map[string]any

func TestATaskGoesThroughTheAPI(t *testing.T) {
	s := start(t)
	var e server.EnqueuedTask
	s.do("POST", "/api/v1/tasks",
		`{"kind":"send_email","args":{"big":12345678901234567890.10},"queue":"mail","tags":["a"],"metadata":{"m":"1"},
		"priority":-5,"max_attempts":3,"timeout":"90s","backoff":{"shape":"linear","base":"5m"},"delay":"1h","key":"k1",
		"partition":"p","weight":7,"deadline_in":"3h","ephemeral":true}`).want(t, 201, &e)
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
	// Many concurrent requests store one task.
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
	// If the key is taken, the second response is the same.
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
