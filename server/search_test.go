package server_test

import (
	"bytes"
	"fmt"
	"html"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server"
	"github.com/tuskqueue/tusk/server/access"
	"github.com/tuskqueue/tusk/server/query"
	"github.com/tuskqueue/tusk/store/memory"
)

func TestASearchInArgsHasAWindowAndABudget(t *testing.T) {
	for name, open := range engines {
		t.Run(name, func(t *testing.T) {
			if raced && name == "sqlite" {
				t.Skip("takes minutes with the race detector: each page reads the window's tasks anew")
			}
			client := newClient(t, open(t))
			s := startOn(t, client)
			batch := make([]tusk.NewTask, 1000)
			for i := range query.SearchBudget/1000 + 2 {
				for j := range batch {
					batch[j] = tusk.NewTask{Args: tusk.RawArgs{Name: "k",
						JSON: fmt.Appendf(nil, `{"order":{"id":%d},"password":"hunter2"}`, i*1000+j)}}
				}
				if _, err := client.EnqueueMany(t.Context(), batch); err != nil {
					t.Fatal(err)
				}
			}
			found, looked, next := 0, 0, ""
			for more := true; more; more = next != "" { // on a slow machine a page ends early
				var page server.TaskPage
				s.do("GET", "/api/v1/tasks?from=1h&args="+url.QueryEscape("order.id=6999")+"&cursor="+next, nil).want(t, 200, &page)
				if page.Looked > query.SearchBudget || page.Looked == 0 {
					t.Fatalf("a page looks through %d tasks", page.Looked)
				}
				found, looked, next = found+len(page.Tasks), looked+page.Looked, page.Next
			}
			if found != 1 || looked != 7000 {
				t.Errorf("%d tasks of %d", found, looked)
			}
			var page server.TaskPage
			s.do("GET", "/api/v1/tasks?from=1h&limit=3&args="+url.QueryEscape(`"ID":69`), nil).want(t, 200, &page)
			if len(page.Tasks) != 3 || page.Looked >= 200 {
				t.Errorf("%d tasks of %d", len(page.Tasks), page.Looked)
			}
			body := s.do("GET", "/tasks?from=1h&args=order.id%3D6999", nil).want(t, 200, nil).body
			if !strings.Contains(body, "for a page 5\u202f000 at most and for 150 ms or so:") ||
				!strings.Contains(body, "Look further") || strings.Contains(body, "all tasks that match") {
				t.Error("the page does not state its budget")
			}
			if body := s.do("GET", "/tasks?args=order.id%3D6999", nil).want(t, 200, nil).body; !strings.Contains(body,
				"from</span> <span class=\"clip\">24h") {
				t.Error("the page does not say its window")
			}
		})
	}
}

func TestASearchInArgsTellsNoSecrets(t *testing.T) {
	s := start(t)
	s.enqueue(object{"kind": "k", "args": object{"password": "hunter2", "to": "ada"}})
	s.enqueue(object{"kind": "k", "tenant": "umbrella", "args": object{"to": "eve"}})
	find := func(token, text string) int {
		var page server.TaskPage
		s.as(token, "GET", "/api/v1/tasks?from=1h&args="+url.QueryEscape(text), nil).want(t, 200, &page)
		return len(page.Tasks)
	}
	for _, text := range []string{"hunter", "password=hunter2", `"password":"h`} {
		if find(s.token, text) != 0 {
			t.Errorf("%s finds what is hidden", text)
		}
	}
	acme := s.tokenFor(access.Token{Name: "acme", Role: access.Viewer, Tenants: []string{"acme"}})
	if find(s.token, "to=ada") != 1 || find(s.token, "to=eve") != 1 || find(acme, "eve") != 0 {
		t.Error("a search finds too little, or too much")
	}
	s.do("GET", "/api/v1/tasks?args=x", nil).problem(t, 422, "window_missing")
	s.do("GET", "/api/v1/tasks?args=x&from=800h", nil).problem(t, 422, "window_too_large")
	s.do("GET", "/api/v1/tasks?from=1h&args="+strings.Repeat("x", 201), nil).problem(t, 400, "filter_too_complex")
	s.do("POST", "/api/v1/bulk", object{"filter": object{"args": "ada", "from": "1h"}, "action": "cancel"}).problem(t, 422,
		"not_for_operations")
	s.post("/tasks/selected", form("scope", "all", "action", "cancel", "query", "args=ada&from=1h")).want(t, 400, nil)
	if lines := strings.Count(s.do("GET", "/api/v1/tasks/export?from=1h&args=ada", nil).want(t, 200, nil).body,
		"\n"); lines != 1 {
		t.Errorf("%d lines are exported", lines)
	}
}

func TestATaskIsEditedInItsPlace(t *testing.T) {
	s := start(t)
	state := func(id string) string { return s.task(id).State }
	plain := s.enqueue(object{"kind": "k", "delay": "2h", "args": object{"n": 1, "password": "p"}, "metadata": object{
		"m": "1"}, "timeout": "90s", "weight": 3, "deadline_in": "5h", "ephemeral": true, "partition": "p"})
	for _, fact := range []string{"Deadline</dt>", "3 in rates", "Ephemeral</dt>", "Partition</dt>"} {
		if !strings.Contains(s.do("GET", "/tasks/"+plain, nil).want(t, 200, nil).body, fact) {
			t.Errorf("the page has no %s", fact)
		}
	}
	deadline := s.task(plain).Deadline
	body := s.do("GET", "/tasks/new?edit=1&of="+plain, nil).want(t, 200, nil).body
	if !strings.Contains(body, "Edit task") || !strings.Contains(body, deadline.Format("2006-01-02T15:04:05")) ||
		!strings.Contains(body, `name="ephemeral" value="1" checked`) ||
		!strings.Contains(body, time.Now().UTC().Format("2006-01-02T")) {
		t.Error("the form does not have what is stored")
	}
	s.post("/tasks/new", form("of", plain, "edit", "1", "kind", "k", "args", `{"n":`, "when", "2h")).want(t, 400, nil)
	s.post("/tasks/new", form("of", plain, "edit", "1", "kind", "NO", "args", `{"n":2}`, "when", "2h")).want(t, 400, nil)
	s.post("/tasks/new", form("of", plain, "edit", "1", "kind", "k", "args", `{"n":2}`, "when", "2h", "weight", "x")).want(
		t, 400, nil)
	s.post("/tasks/new", form("of", plain, "edit", "1", "kind", "k", "args", `{"n":2}`, "when", "2h", "deadline",
		"soon")).want(t, 400, nil)
	if state(plain) != "scheduled" {
		t.Fatal("an edit that is refused cancels the task")
	}
	a := s.post("/tasks/new", form("of", plain, "edit", "1", "kind", "k", "args", `{"n":2}`, "when", "2h", "weight", "4",
		"ephemeral", "1", "deadline", deadline.Format(time.RFC3339Nano))).want(t, 303, nil)
	id := strings.TrimSuffix(strings.TrimPrefix(a.header.Get("Location"), "/tasks/"), "?note=changed")
	if d := s.task(id); id == plain || string(d.Args) != `{"n":2}` || d.State != "scheduled" || d.Metadata["m"] != "1" ||
		time.Duration(d.Timeout) != 90*time.Second ||
		d.Weight != 4 || !d.Ephemeral || d.Partition != "p" || !d.Deadline.Equal(deadline) {
		t.Errorf("%+v", d)
	}
	if d := s.task(plain); d.State != "cancelled" || !strings.Contains(d.Reason, "edited") {
		t.Errorf("%+v", d)
	}
	s.do("GET", "/tasks/new?edit=1&of="+plain, nil).want(t, 409, nil)
	keyed := s.enqueue(object{"kind": "k", "delay": "2h", "key": "x", "args": object{"n": 1}})
	a = s.post("/tasks/new", form("of", keyed, "edit", "1", "key", "x", "kind", "k", "args", `{"n":3}`, "when",
		"2h")).want(t, 303, nil)
	if d := s.task(keyed); !strings.Contains(a.header.Get("Location"), keyed) || string(d.Args) != `{"n":3}` ||
		d.State != "scheduled" {
		t.Errorf("%+v", d)
	}
	producer := s.tokenFor(access.Token{Name: "p", Role: access.Producer})
	if a := s.as(producer, "POST", "/tasks/new", form("of", keyed, "edit", "1", "kind", "k", "args", "{}"), "Content-Type",
		"application/x-www-form-urlencoded"); a.status/100 != 4 || s.task(keyed).State != "scheduled" {
		t.Error("a producer edits:", a.status)
	}
}

func TestAnEditThatChangesTheTenantLeavesOneTask(t *testing.T) {
	s := start(t)
	edit := func(id, tenant string) answer {
		return s.post("/tasks/new", form("of", id, "edit", "1", "key", "x", "tenant", tenant, "kind", "k", "args", `{"n":2}`,
			"when", "2h"))
	}
	keyed := s.enqueue(object{"kind": "k", "delay": "2h", "key": "x", "tenant": "acme", "args": object{"n": 1}})
	other := s.enqueue(object{"kind": "k", "delay": "2h", "key": "x", "tenant": "umbrella", "args": object{"n": 9}})
	edit(keyed, "umbrella").want(t, 409, nil)
	if d := s.task(other); string(d.Args) != `{"n":9}` || s.task(keyed).State != "scheduled" {
		t.Errorf("an edit to a key that is taken changes a task: %+v", d)
	}
	location := edit(keyed, "globex").want(t, 303, nil).header.Get("Location")
	id := strings.TrimSuffix(strings.TrimPrefix(location, "/tasks/"), "?note=changed")
	if d := s.task(id); d.Tenant != "globex" || d.Key != "x" || s.task(keyed).State != "cancelled" {
		t.Errorf("the old task is %s, the new one %+v", s.task(keyed).State, d)
	}
}

func TestTheLastUseOfATokenIsKnown(t *testing.T) {
	s := start(t)
	used := s.tokenFor(access.Token{Name: "used", Role: access.Viewer})
	s.tokenFor(access.Token{Name: "idle", Role: access.Viewer})
	for range 3 {
		s.as(used, "GET", "/api/v1/me", nil).want(t, 200, nil)
	}
	var list server.TokenList
	s.do("GET", "/api/v1/tokens", nil).want(t, 200, &list)
	for _, token := range list.Tokens {
		if (token.Name == "idle") != token.UsedAt.IsZero() || time.Since(token.UsedAt) > time.Minute &&
			!token.UsedAt.IsZero() {
			t.Errorf("%s: used at %v", token.Name, token.UsedAt)
		}
	}
}

// The args of a task are encrypted for that task alone. A copy gets its own encryption.
func TestACloneOfATaskWithEncryptedArgsCanBeRead(t *testing.T) {
	store := memory.New()
	clientOf := func(ring *tusk.KeyRing) *tusk.Client {
		client, err := tusk.NewClient(store, &tusk.ClientConfig{Logger: discard(), KeyRing: ring})
		if err != nil {
			t.Fatal(err)
		}
		return client
	}
	s := startOn(t, clientOf(&tusk.KeyRing{Primary: "k", Keys: map[string][]byte{"k": bytes.Repeat([]byte{7}, 32)}}))
	of := s.enqueue(object{"kind": "k", "args": object{"n": 41}})
	copied := func(s *site) answer {
		body := s.do("GET", "/tasks/new?of="+of, nil).want(t, 200, nil).body
		_, text, found := strings.Cut(body, `name="args"`)
		_, text, _ = strings.Cut(text, ">")
		text, _, _ = strings.Cut(text, "</textarea>")
		if !found || !strings.Contains(text, "$encrypted") {
			t.Fatalf("the form shows the args as %q", text)
		}
		return s.post("/tasks/new", form("of", of, "kind", "k", "args", html.UnescapeString(text)))
	}
	copied(s).want(t, 303, nil)
	again, err := s.client.List(t.Context(), tusk.Filter{Limit: 10})
	if err != nil || len(again) != 2 {
		t.Fatal(len(again), err)
	}
	for _, task := range again {
		if got, err := s.client.Again(task); err != nil || string(got.Args.(tusk.RawArgs).JSON) != `{"n":41}` {
			t.Errorf("the args of %v are %s: %v", task.ID, got.Args, err)
		}
	}
	copied(startOn(t, clientOf(nil))).want(t, 409, nil)
}
