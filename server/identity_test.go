package server_test

import (
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/tuskqueue/tusk/mask"
	"github.com/tuskqueue/tusk/server"
	"github.com/tuskqueue/tusk/server/access"
)

// shops returns two tokens with the same name, each for its own tenant.
func (s *site) shops(role access.Role) (acme, umbrella string) {
	return s.tokenFor(access.Token{Name: "shop", Role: role, Tenants: []string{"acme"}}),
		s.tokenFor(access.Token{Name: "shop", Role: role, Tenants: []string{"umbrella"}})
}

func TestTokensOfOneNameShareNoIdempotencyKeys(t *testing.T) {
	s := start(t)
	acme, umbrella := s.shops(access.Producer)
	var first, second server.EnqueuedTask
	s.as(acme, "POST", "/api/v1/tasks", object{"kind": "k", "tenant": "acme"}, "Idempotency-Key", "order-1").want(t,
		201, &first)
	s.as(umbrella, "POST", "/api/v1/tasks", object{"kind": "k", "tenant": "umbrella"}, "Idempotency-Key",
		"order-1").want(t, 201, &second)
	if first.ID == second.ID || s.task(first.ID).Tenant != "acme" || s.task(second.ID).Tenant != "umbrella" {
		t.Errorf("%+v, %+v", first, second)
	}
	again := s.as(umbrella, "POST", "/api/v1/tasks", object{"kind": "k", "tenant": "umbrella"}, "Idempotency-Key",
		"order-1").want(t, 201, &first)
	if first.ID != second.ID || again.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("repeated: %+v", first)
	}
}

func TestTokensOfOneNameOwnNoBulkOperationsOfEachOther(t *testing.T) {
	s := start(t)
	acme, umbrella := s.shops(access.Operator)
	var o server.Bulk
	s.as(acme, "POST", "/api/v1/bulk", object{"filter": object{"queue": []string{"q"}}, "action": "cancel",
		"per_second": 1}).want(t, 202, &o)
	s.as(acme, "GET", "/api/v1/bulk/"+o.ID, nil).want(t, 200, nil)
	s.as(umbrella, "GET", "/api/v1/bulk/"+o.ID, nil).problem(t, 404, "not_found")
	s.as(umbrella, "POST", "/api/v1/bulk/"+o.ID+"/cancel", nil).problem(t, 404, "not_found")
	s.as(umbrella, "POST", "/bulk/"+o.ID+"/cancel", nil).want(t, 404, nil)
	var page server.BulkPage
	s.as(umbrella, "GET", "/api/v1/bulk", nil).want(t, 200, &page)
	if len(page.Operations) != 0 {
		t.Errorf("%+v", page)
	}
	s.do("GET", "/api/v1/bulk", nil).want(t, 200, &page)
	if !slices.ContainsFunc(page.Operations, func(b server.Bulk) bool { return b.ID == o.ID }) {
		t.Errorf("nobody without bounds sees it: %+v", page)
	}
}

// Tries everything that a token can do: a task, a batch, and a batch together with tasks of others.
func TestNoTokenReachesTasksOfAnotherTenantByTheirKeys(t *testing.T) {
	s := start(t)
	producer := s.tokenFor(access.Token{Name: "acme", Role: access.Producer, Tenants: []string{"acme"}})
	var victim, e server.EnqueuedTask
	s.do("POST", "/api/v1/tasks", object{"kind": "bill", "tenant": "umbrella", "key": "inv-1",
		"args": object{"amount": 10}}).want(t, 201, &victim)
	for _, conflict := range []string{"skip", "replace", "rerun"} {
		evil := object{"kind": "evil", "tenant": "acme", "key": "inv-1", "on_conflict": conflict,
			"args": object{"amount": 1000}, "delay": "80000h"}
		if s.as(producer, "POST", "/api/v1/tasks", evil); s.task(victim.ID).Kind != "bill" {
			t.Fatalf("%s changed it: %+v", conflict, s.task(victim.ID))
		}
		if body := s.as(producer, "POST", "/api/v1/tasks/batch", object{"tasks": []object{evil}}).body; strings.Contains(body,
			victim.ID) {
			t.Errorf("%s tells of it: %s", conflict, body)
		}
	}
	s.as(producer, "POST", "/api/v1/tasks", object{"kind": "k", "tenant": "acme", "key": "inv-2", "delay": "80000h"}).want(
		t, 201, nil)
	s.do("POST", "/api/v1/tasks", object{"kind": "bill", "tenant": "umbrella", "key": "inv-2"}).want(t, 201, &e)
	if e.Result != "added" {
		t.Errorf("a key was taken in advance: %+v", e)
	}
	for _, key := range []string{"schedule:nightly", "unique:bill:0123456789abcdef0123456789abcdef"} {
		s.as(producer, "POST", "/api/v1/tasks", object{"kind": "k", "tenant": "acme", "key": key}).problem(t, 422, "reserved")
	}
}

func TestTheAuditLogTellsTokensOfOneNameApart(t *testing.T) {
	s := start(t)
	acme, umbrella := s.shops(access.Operator)
	var me access.Identity
	s.as(acme, "GET", "/api/v1/me", nil).want(t, 200, &me)
	for _, token := range []string{acme, umbrella} {
		s.as(token, "POST", "/api/v1/bulk", object{"filter": object{"queue": []string{"q"}}, "action": "cancel"}).want(
			t, 202, nil)
	}
	for who, want := range map[string]int{me.ID: 1, "shop": 2, "token:0": 0} {
		var list server.AuditList
		s.do("GET", "/api/v1/audit?who="+who, nil).want(t, 200, &list)
		if len(list.Entries) != want {
			t.Errorf("%s: %+v, want %d", who, list.Entries, want)
		}
	}
}

func TestAWorkflowNamesNoTaskBeyondBounds(t *testing.T) {
	s := start(t)
	var run server.WorkflowRun
	s.do("POST", "/api/v1/workflows", object{"tasks": []object{
		{"name": "hidden", "kind": "k", "queue": "secret"},
		{"name": "a", "kind": "k", "queue": "mine", "after": []string{"hidden"}},
		{"name": "b", "kind": "k", "queue": "mine", "after": []string{"a", "hidden"}}}}).want(t, 201, &run)
	bound := s.tokenFor(access.Token{Name: "bound", Role: access.Viewer, Queues: []string{"mine"}})
	for _, path := range []string{"/api/v1/workflows/" + run.ID, "/workflows/" + run.ID, "/tasks/" + run.Tasks["b"],
		"/api/v1/tasks/" + run.Tasks["b"],
		"/api/v1/tasks/" + run.Tasks["b"] + "/why"} {
		if body := s.as(bound, "GET", path, nil).want(t, 200, nil).body; strings.Contains(body, run.Tasks["hidden"]) {
			t.Errorf("%s names a task beyond bounds: %s", path, body)
		}
	}
	for token, want := range map[string]int{bound: 1, s.token: 2} {
		var w server.Workflow
		s.as(token, "GET", "/api/v1/workflows/"+run.ID, nil).want(t, 200, &w)
		if last := w.Tasks[len(w.Tasks)-1]; len(last.Needs) != want || last.Needs[0].ID != run.Tasks["a"] && want == 1 {
			t.Errorf("needs %+v, want %d", last.Needs, want)
		}
	}
}

func TestMetadataIsMasked(t *testing.T) {
	for name, hideAll := range map[string]bool{"by name": false, "all": true} {
		t.Run(name, func(t *testing.T) {
			s := start(t, func(c *server.Config) {
				if hideAll {
					c.Mask = &mask.Mask{All: true}
				}
			})
			var e server.EnqueuedTask
			secrets := object{"password": "canary-1", "DB_PWD": "canary-2", "passphrase": "canary-3",
				"aws_credentials": "canary-4", "note": "legible-note"}
			s.do("POST", "/api/v1/tasks", object{"kind": "k", "metadata": secrets}).want(t, 201, &e)
			for _, path := range []string{"/api/v1/tasks", "/api/v1/tasks/" + e.ID, "/tasks/" + e.ID, "/api/v1/tasks/export"} {
				body := s.do("GET", path, nil).want(t, 200, nil).body
				if strings.Contains(body, "canary") || hideAll && strings.Contains(body, "legible-note") {
					t.Errorf("%s shows it: %s", path, body)
				}
			}
		})
	}
}

func TestAnAdminLogsPeopleOut(t *testing.T) {
	s := start(t)
	s.do("PUT", "/api/v1/users/ada", object{"password": "correct horse", "role": "viewer"}).want(t, 200, nil)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	person := &http.Client{Jar: jar}
	if _, err := person.PostForm(s.URL+"/login", url.Values{"name": {"ada"}, "password": {"correct horse"}}); err != nil {
		t.Fatal(err)
	}
	var list server.PersonList
	s.do("GET", "/api/v1/sessions", nil).want(t, 200, &list)
	if len(list.People) != 1 || list.People[0].ID != "user:ada" || list.People[0].Sessions != 1 {
		t.Errorf("%+v", list)
	}
	s.do("POST", "/api/v1/sessions/end", object{"identity": "user:bob"}).problem(t, 404, "not_found")
	s.do("POST", "/api/v1/sessions/end", object{"identity": "user:ada"}).want(t, 204, nil)
	r, err := person.Get(s.URL + "/api/v1/me")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if r.StatusCode != 401 {
		t.Errorf("still logged in: %d", r.StatusCode)
	}
}
