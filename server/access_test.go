package server_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server"
	"github.com/tuskqueue/tusk/server/access"
	"github.com/tuskqueue/tusk/store"
)

func TestARevocationEndsBothStreams(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a beat of a stream: 15 s")
	}
	t.Parallel()
	s := start(t)
	var made server.NewToken
	s.do("POST", "/api/v1/tokens", object{"name": "soon", "role": "viewer"}).want(t, 201, &made)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var ends []*bufio.Scanner
	for _, path := range streams(t) {
		r, err := http.NewRequestWithContext(ctx, "GET", s.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+made.Secret)
		a, err := http.DefaultClient.Do(r)
		if err != nil || a.StatusCode != 200 {
			t.Fatal(path, a, err)
		}
		defer a.Body.Close()
		ends = append(ends, bufio.NewScanner(a.Body))
	}
	s.do("DELETE", "/api/v1/tokens/"+made.Token.ID, nil).want(t, 204, nil)
	for i, lines := range ends {
		for lines.Scan() {
		}
		if lines.Err() != nil {
			t.Errorf("%s goes on: %v", streams(t)[i], lines.Err())
		}
	}
}

func TestTenantsAndQueuesAreWalls(t *testing.T) {
	s := start(t)
	enqueue := func(queue, tenant string) string {
		var e server.EnqueuedTask
		s.do("POST", "/api/v1/tasks", object{"kind": "k", "queue": queue, "tenant": tenant}).want(t, 201, &e)
		return e.ID
	}
	mine, theirs, none := enqueue("a.x", "acme"), enqueue("a.x", "umbrella"), enqueue("b", "acme")
	token := s.tokenFor(access.Token{Name: "acme", Role: access.Operator, Queues: []string{"a.*"},
		Tenants: []string{"acme"}})
	do := func(method, path string, body any) answer { return s.as(token, method, path, body) }

	var page server.TaskPage
	do("GET", "/api/v1/tasks", nil).want(t, 200, &page)
	if len(page.Tasks) != 1 || page.Tasks[0].ID != mine {
		t.Errorf("%+v", page)
	}
	for _, id := range []string{theirs, none} {
		do("GET", "/api/v1/tasks/"+id, nil).problem(t, 404, "not_found")
		do("GET", "/tasks/"+id, nil).want(t, 404, nil)
		do("GET", "/tasks/new?of="+id, nil).want(t, 404, nil)
		do("POST", "/api/v1/tasks/"+id+"/cancel", nil).problem(t, 404, "not_found")
		do("DELETE", "/api/v1/tasks/"+id, nil).problem(t, 404, "not_found")
		do("POST", "/tasks/"+id+"/cancel", nil).want(t, 404, nil)
	}
	var results server.EditResults
	do("POST", "/api/v1/tasks/edit", object{"ids": []string{theirs, mine, none}, "action": "reprioritize",
		"priority": 3}).want(t, 200, &results)
	if got := fmt.Sprint(results.Results[0].Result, " ", results.Results[1].Result, " ",
		results.Results[2].Result); got != "missing changed missing" {
		t.Error(got)
	}
	form := url.Values{"id": {theirs, none}, "action": {"cancel"}}
	s.as(token, "POST", "/tasks/selected", form.Encode(), "Content-Type", "application/x-www-form-urlencoded").want(
		t, 303, nil)
	var o server.Bulk
	do("POST", "/api/v1/bulk", object{"filter": object{}, "all": true, "action": "cancel"}).want(t, 202, &o)
	eventually(t, func() bool { do("GET", "/api/v1/bulk/"+o.ID, nil).want(t, 200, &o); return o.State == "done" })
	if o.Seen != 1 {
		t.Errorf("%+v", o)
	}
	for _, id := range []string{theirs, none} {
		if d := s.task(id); d.State != "available" || d.Priority != 0 {
			t.Errorf("a wall has a hole: %+v", d)
		}
	}
	if body := do("GET", "/api/v1/tasks/export", nil).want(t, 200, nil).body; strings.Contains(body, theirs) ||
		strings.Contains(body, none) {
		t.Error(body)
	}
	if body := do("GET", "/tasks", nil).want(t, 200, nil).body; strings.Contains(body, theirs) ||
		strings.Contains(body, none) || !strings.Contains(body, mine) {
		t.Error("the page shows what it must not")
	}
	for want, task := range map[string]object{
		"may not use the tenant umbrella":     {"kind": "k", "queue": "a.x", "tenant": "umbrella"},
		"bound to tenants":                    {"kind": "k", "queue": "a.x"},
		"may not use the queue b: it is not ": {"kind": "k", "queue": "b", "tenant": "acme"},
		"may not use the queue default: ":     {"kind": "k", "tenant": "acme"},
	} {
		if p := do("POST", "/api/v1/tasks", task).problem(t, 403, "forbidden"); !strings.Contains(p.Detail, want) {
			t.Errorf("%q: want %q", p.Detail, want)
		}
	}
	do("POST", "/api/v1/tasks/batch", object{"tasks": []object{{"kind": "k", "queue": "a.x", "tenant": "acme"},
		{"kind": "k", "queue": "b", "tenant": "acme"}}}).problem(t, 403, "forbidden")
	do("POST", "/api/v1/tasks/"+mine+"/move", object{"queue": "b"}).problem(t, 403, "forbidden")
	do("PUT", "/api/v1/schedules/x", object{"spec": "@daily", "kind": "k", "queue": "b"}).problem(t, 403, "forbidden")
	for _, path := range []string{"/api/v1/queues", "/api/v1/stats", "/api/v1/errors", "/api/v1/workers", "/api/v1/events",
		"/", "/queues", "/errors", "/workers", "/live", "/series.json"} {
		if a := do("GET", path, nil); a.status != 403 {
			t.Errorf("%s tells a tenant of all: %d", path, a.status)
		}
	}
	do("POST", "/api/v1/queues/a.x/pause", nil).problem(t, 403, "forbidden")
	bound := s.tokenFor(access.Token{Name: "half-admin", Role: access.Admins, Queues: []string{"a.*"}})
	s.as(bound, "POST", "/api/v1/tokens", object{"name": "all", "role": "admin"}).problem(t, 403, "forbidden")
	s.as(bound, "GET", "/audit", nil).want(t, 403, nil)
	var queues server.QueueList
	s.as(bound, "GET", "/api/v1/queues", nil).want(t, 200, &queues)
	if len(queues.Queues) != 1 || queues.Queues[0].Name != "a.x" {
		t.Error(queues)
	}
}

func TestTokensExpireAndAreRevoked(t *testing.T) {
	s := start(t)
	var made server.NewToken
	s.do("POST", "/api/v1/tokens", object{"name": "ci", "role": "viewer"}).want(t, 201, &made)
	s.as(made.Secret, "GET", "/api/v1/me", nil).want(t, 200, nil)
	for _, bad := range []string{made.Secret + "0", made.Secret[:len(made.Secret)-1], "tusk__",
		"tusk_" + made.Token.ID + "_", strings.ToUpper(made.Secret), "x", "tusk_a_b_c"} {
		s.as(bad, "GET", "/api/v1/me", nil).problem(t, 401, "unauthenticated")
	}
	s.do("GET", "/api/v1/me?token="+made.Secret, nil).problem(t, 400, "unknown_parameter")
	if body := s.do("GET", "/api/v1/tokens", nil).want(t, 200, nil).body; strings.Contains(body, made.Secret) ||
		strings.Contains(body, "hash") {
		t.Error("secrets are listed")
	}
	records, err := s.client.Store().Records(t.Context(), store.RecordFilter{Kind: "token"})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		if strings.Contains(string(r.Body), made.Secret) {
			t.Error("the secret is stored")
		}
	}
	s.do("DELETE", "/api/v1/tokens/"+made.Token.ID, nil).want(t, 204, nil)
	s.as(made.Secret, "GET", "/api/v1/me", nil).problem(t, 401, "unauthenticated")
	s.do("DELETE", "/api/v1/tokens/nothing", nil).problem(t, 404, "not_found")
	s.do("POST", "/api/v1/tokens", object{"name": "x", "role": "root"}).problem(t, 400, "invalid")
	s.do("POST", "/api/v1/tokens", object{"name": "x", "role": "viewer", "queues": []string{"A*B"}}).problem(t,
		400, "invalid")
	short := s.tokenFor(access.Token{Name: "short", Role: access.Viewer, ExpiresAt: time.Now().Add(time.Second)})
	s.as(short, "GET", "/api/v1/me", nil).want(t, 200, nil)
	eventually(t, func() bool { return s.as(short, "GET", "/api/v1/me", nil).status == 401 })
	// Guessing is throttled.
	var last answer
	for range 15 {
		last = s.as("tusk_0000000000000000_00", "GET", "/api/v1/me", nil)
	}
	if last.problem(t, 429, "rate_limited"); last.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
}

func TestPeopleLogInAndOut(t *testing.T) {
	s := start(t)
	s.do("PUT", "/api/v1/users/ada", object{"password": "short", "role": "viewer"}).problem(t, 400, "invalid")
	s.do("PUT", "/api/v1/users/ada", object{"password": strings.Repeat("x", 73), "role": "viewer"}).problem(t,
		400, "invalid")
	s.do("PUT", "/api/v1/users/ada", object{"password": "correct horse", "role": "viewer"}).want(t, 200, nil)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	person := &http.Client{Jar: jar}
	post := func(path string, form url.Values) (int, string) {
		r, err := person.PostForm(s.URL+path, form)
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		return r.StatusCode, r.Request.URL.Path
	}
	if status, _ := post("/login", url.Values{"name": {"ada"}, "password": {"wrong horse"}}); status != 401 {
		t.Error(status)
	}
	if status, _ := post("/login", url.Values{"name": {"nobody"}, "password": {"wrong horse"}}); status != 401 {
		t.Error(status)
	}
	if status, at := post("/login", url.Values{"name": {"ada"}, "password": {"correct horse"},
		"next": {"/tasks?queue=a"}}); status != 200 || at != "/tasks" {
		t.Error(status, at)
	}
	if status, _ := post("/tasks/new", url.Values{"kind": {"k"}, "args": {"{}"}}); status != 403 {
		t.Error("a viewer enqueues:", status)
	}
	for _, next := range []string{"https://evil.example", "//evil.example", `/\evil.example`, "javascript:alert(1)"} {
		if status, at := post("/login", url.Values{"name": {"ada"}, "password": {"correct horse"},
			"next": {next}}); status != 200 || at != "/" {
			t.Error(next, status, at)
		}
	}
	u, _ := url.Parse(s.URL)
	for _, c := range jar.Cookies(u) {
		if records, err := s.client.Store().Records(t.Context(), store.RecordFilter{Kind: "session"}); err != nil ||
			strings.Contains(fmt.Sprintf("%q", bodies(records)), c.Value) {
			t.Error("the cookie is stored", err)
		}
	}
	s.do("DELETE", "/api/v1/users/ada", nil).want(t, 204, nil) // ends the sessions too
	r, err := person.Get(s.URL + "/tasks")
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if r.Request.URL.Path != "/login" {
		t.Error("a removed user is let in:", r.Request.URL)
	}
	for range 12 {
		post("/login", url.Values{"name": {"eve"}, "password": {"guess"}})
	}
	if status, _ := post("/login", url.Values{"name": {"eve"}, "password": {"guess"}}); status != 429 {
		t.Error("guessing goes on:", status)
	}
}

func TestWhatOperatorsDoIsWrittenDown(t *testing.T) {
	s := start(t)
	var e server.EnqueuedTask
	s.do("POST", "/api/v1/tasks", object{"kind": "k"}).want(t, 201, &e)
	s.do("POST", "/api/v1/tasks/"+e.ID+"/cancel", nil).want(t, 200, nil)
	s.do("POST", "/api/v1/tasks/"+e.ID+"/cancel", nil).problem(t, 409, "invalid_state")
	viewer := s.tokenFor(access.Token{Name: "eve", Role: access.Viewer})
	s.as(viewer, "POST", "/api/v1/queues/default/pause", nil).problem(t, 403, "forbidden")
	var log server.AuditList
	s.do("GET", "/api/v1/audit", nil).want(t, 200, &log)
	got := ""
	for _, a := range log.Entries {
		got += a.Who + " " + a.Action + " " + a.Result + "; "
		if a.Action == "tasks.cancel" && (a.Target != e.ID || a.Request == "" || a.Address == "") {
			t.Errorf("%+v", a)
		}
	}
	if got != "eve queues.pause forbidden; test-admin tasks.cancel invalid_state; test-admin tasks.cancel ok; " {
		t.Error(got)
	}
	s.do("GET", "/api/v1/audit?who=eve", nil).want(t, 200, &log)
	if len(log.Entries) != 1 {
		t.Error(log)
	}
}

func bodies(records []store.Record) (texts []string) {
	for _, r := range records {
		texts = append(texts, r.Name, string(r.Body))
	}
	return texts
}

// Alerts, the doctor, metrics and workers do not show a caller queues out of its bounds, and a muted alert notifies
// nobody.
func TestAlertsAndWorkersAreToldWithinBounds(t *testing.T) {
	s := start(t)
	for name, queue := range map[string]string{"mine": "a.x", "theirs": "b", "every": ""} {
		s.do("PUT", "/api/v1/alerts/"+name+"?create=true",
			object{"kind": "oldest", "queue": queue, "mail": []string{"ops@example.com"}}).want(t, 200, nil)
	}
	worker := store.Worker{ID: tusk.NewID(), Host: "h", Queues: []string{"a.x", "b"}}
	if _, err := s.client.Store().Extend(t.Context(), store.Beat{Worker: worker, TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	bound := s.tokenFor(access.Token{Name: "bound", Role: access.Operator, Queues: []string{"a.*"}})
	tenant := s.tokenFor(access.Token{Name: "tenant", Role: access.Operator, Queues: []string{"a.*"},
		Tenants: []string{"acme"}})
	var list server.AlertList
	s.as(bound, "GET", "/api/v1/alerts", nil).want(t, 200, &list)
	if len(list.Alerts) != 1 || list.Alerts[0].Name != "mine" {
		t.Errorf("%+v", list)
	}
	if page := s.as(bound, "GET", "/alerts", nil).want(t, 200, nil).body; !strings.Contains(page, "mine") ||
		strings.Contains(page, "theirs") {
		t.Error("the page of alerts tells of others")
	}
	s.as(bound, "POST", "/api/v1/alerts/mine/mute", object{"for": "1h"}).want(t, 200, nil)
	for _, name := range []string{"theirs", "every"} {
		s.as(bound, "GET", "/api/v1/alerts/"+name, nil).problem(t, 404, "not_found")
		s.as(bound, "GET", "/alerts?edit="+name, nil).want(t, 404, nil)
		s.as(bound, "POST", "/alerts/"+name+"/mute", nil).want(t, 404, nil)
		for _, token := range []string{bound, tenant} {
			s.as(token, "POST", "/api/v1/alerts/"+name+"/mute", object{"for": "1h"}).problem(t, 404, "not_found")
			s.as(token, "POST", "/api/v1/alerts/"+name+"/test", nil).problem(t, 404, "not_found")
		}
	}
	s.as(tenant, "POST", "/api/v1/alerts/mine/mute", object{"for": "1h"}).problem(t, 404, "not_found")
	for _, token := range []string{bound, tenant} {
		s.as(token, "GET", "/api/v1/doctor", nil).problem(t, 403, "forbidden")
		s.as(token, "GET", "/doctor", nil).want(t, 403, nil)
	}
	var workers server.WorkerList
	s.as(bound, "GET", "/api/v1/workers", nil).want(t, 200, &workers)
	if len(workers.Workers) != 1 || len(workers.Workers[0].Queues) != 1 || workers.Workers[0].Queues[0] != "a.x" {
		t.Errorf("%+v", workers)
	}
}
