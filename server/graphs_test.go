package server_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server"
	"github.com/tuskqueue/tusk/server/access"
	"github.com/tuskqueue/tusk/server/query"
)

func form(values ...string) string {
	v := url.Values{}
	for i := 0; i+1 < len(values); i += 2 {
		v.Add(values[i], values[i+1])
	}
	return v.Encode()
}

// post sends a form.
func (s *site) post(path, body string) answer {
	s.t.Helper()
	return s.do("POST", path, body, "Content-Type", "application/x-www-form-urlencoded")
}

func TestLimitsAreSetByTheAPIAndByThePage(t *testing.T) {
	s := start(t)
	s.do("GET", "/api/v1/limits/sync", nil).problem(t, 404, "not_found")
	body := object{"concurrency": 20, "per_tenant": 2, "per_worker": 4, "rate": object{"allowed": 100, "period": "1m"},
		"tenants": object{"acme": object{"concurrency": 5, "weight": 3}}}
	var got server.QueueLimits
	s.do("PUT", "/api/v1/limits/sync?create=true", body).want(t, 200, nil)
	s.do("GET", "/api/v1/limits/sync", nil).want(t, 200, &got)
	if l := got.Limits; l.Concurrency != 20 || l.PerTenant != 2 || l.PerWorker != 4 || l.Rate.Allowed != 100 ||
		l.Rate.Period.String() != "1m" || l.Tenants["acme"].Weight != 3 || l.TenantRate != nil {
		t.Errorf("%+v", got)
	}
	// The form changes what it shows, and keeps the tenants' own limits.
	s.post("/limits", form("queue", "sync", "concurrency", "7", "per_worker", "3", "tenant_rate", "10/s", "sliding",
		"1")).want(t, 303, nil)
	s.post("/tenants/umbrella", form("queue", "sync", "weight", "0.5")).want(t, 303, nil)
	got = server.QueueLimits{}
	s.do("GET", "/api/v1/limits/sync", nil).want(t, 200, &got)
	if l := got.Limits; l.Concurrency != 7 || l.PerWorker != 3 || l.PerTenant != 0 || l.Rate != nil ||
		l.TenantRate.Allowed != 10 || l.TenantRate.Algorithm != "sliding_window" ||
		l.Tenants["acme"].Concurrency != 5 || l.Tenants["umbrella"].Weight != 0.5 {
		t.Errorf("%+v", got)
	}
	if page := s.do("GET", "/limits?edit=sync", nil).want(t, 200, nil).body; !strings.Contains(page, `value="10/1s"`) ||
		!strings.Contains(page, `name="sliding" value="1" checked`) {
		t.Error("the form does not show what is stored")
	}
	s.post("/tenants/umbrella", form("queue", "sync", "weight", "", "concurrency", "")).want(t, 303, nil)
	s.do("PUT", "/api/v1/limits/sync/tenants/initech", object{"concurrency": 9}).want(t, 200, &got)
	if l := got.Limits; l.Tenants["initech"].Concurrency != 9 || l.Tenants["acme"].Concurrency != 5 {
		t.Errorf("%+v", got)
	}
	s.do("PUT", "/api/v1/limits/sync/tenants/initech", object{}).want(t, 200, nil)
	s.do("PUT", "/api/v1/limits/sync/tenants/initech", object{"weight": -1}).problem(t, 400, "out_of_range")
	s.do("PUT", "/api/v1/limits/sync/tenants/A%20B", object{"weight": 1}).problem(t, 400, "invalid_name")
	var tenants server.TenantList
	s.do("GET", "/api/v1/tenants", nil).want(t, 200, &tenants)
	if len(tenants.Tenants) != 1 || tenants.Tenants[0].Limits["sync"].Weight != 3 || !tenants.Whole {
		t.Errorf("%+v", tenants)
	}
	for _, bad := range []object{{"concurrency": -1}, {"rate": object{"allowed": 0, "period": "1m"}},
		{"rate": object{"allowed": 1, "period": "0s"}}, {"rate": object{"allowed": 1, "period": "1m", "algorithm": "x"}},
		{"rate": object{"allowed": 1, "period": "60x"}}, {"tenants": object{"A B": object{}}}, {"unknown": 1},
		{"tenants": object{"a": object{"weight": -1}}}} {
		if a := s.do("PUT", "/api/v1/limits/sync", bad); a.status/100 != 4 {
			t.Errorf("%v: %d", bad, a.status)
		}
	}
	for _, bad := range []string{form("queue", "A B"), form("queue", "sync", "concurrency", "x"),
		form("queue", "sync", "rate", "fast"), form("queue", "sync", "rate", "0/1m")} {
		if a := s.post("/limits", bad); a.status/100 != 4 || !strings.Contains(a.body, `role="alert"`) {
			t.Errorf("%s: %d", bad, a.status)
		}
	}
	s.post("/limits/sync/remove", "").want(t, 200, nil) // asks for confirmation
	s.do("DELETE", "/api/v1/limits/sync", nil).want(t, 204, nil)
	s.do("DELETE", "/api/v1/limits/sync", nil).problem(t, 404, "not_found")
}

func TestTheAPIAndThePageTellWhoHasATurnAndWhoWaits(t *testing.T) {
	s := start(t)
	s.do("GET", "/api/v1/limits/sync/turns", nil).problem(t, 404, "not_found")
	s.do("PUT", "/api/v1/limits/sync?create=true", object{"concurrency": 1}).want(t, 200, nil)
	var turns server.TurnList
	s.do("GET", "/api/v1/limits/sync/turns", nil).want(t, 200, &turns)
	if turns.Turns == nil || len(turns.Turns) != 0 {
		t.Error(turns)
	}
	if page := s.do("GET", "/limits?turns=sync", nil).want(t, 200, nil).body; !strings.Contains(page,
		"Nobody has a turn") {
		t.Error("the page does not say that nobody has a turn")
	}
	for range 55 { // nobody grants turns: there is no leader
		s.enqueue(object{"kind": "k", "queue": "sync", "tenant": "acme", "partition": "north"})
	}
	s.enqueue(object{"kind": "k", "queue": "sync"})
	s.do("GET", "/api/v1/limits/sync/turns", nil).want(t, 200, &turns)
	want := []server.Turns{{Tenant: "acme", Partition: "north", Waiting: 50, More: true}, {Waiting: 1}}
	if !slices.Equal(turns.Turns, want) {
		t.Errorf("got %+v, want %+v", turns.Turns, want)
	}
	page := s.do("GET", "/limits?turns=sync", nil).want(t, 200, nil).body
	if !strings.Contains(page, "Turns in sync") || !strings.Contains(page, "50 or more") ||
		!strings.Contains(page, "north") {
		t.Error("the page does not tell who waits")
	}
	bound := s.tokenFor(access.Token{Name: "other", Role: access.Viewer, Queues: []string{"other"}})
	s.as(bound, "GET", "/api/v1/limits/sync/turns", nil).problem(t, 404, "not_found")
	if page := s.as(bound, "GET", "/limits?turns=sync", nil).want(t, 200, nil).body; strings.Contains(page, "north") {
		t.Error("the page shows turns to whom it must not")
	}
}

func TestThePageOfALargeWorkflowHasParts(t *testing.T) {
	s := start(t)
	w := tusk.NewWorkflow()
	for i := range 1200 {
		w.Task(fmt.Sprint("n", i), tusk.RawArgs{Name: "k", JSON: []byte("{}")}, nil)
	}
	run, err := s.client.EnqueueWorkflow(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.client.Cancel(t.Context(), run.Tasks["n7"], ""); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]struct {
		rows int
		says string
	}{
		"":                          {500, "1 to 500 of 1,200"},
		"?from=501":                 {500, "501 to 1,000 of 1,200"},
		"?from=1001":                {200, "1,001 to 1,200 of 1,200"},
		"?state=cancelled":          {1, "1 to 1 of 1 cancelled"},
		"?state=available&from=501": {500, "501 to 1,000 of 1,199 available"},
		"?state=running":            {0, "All tasks"},
		"?from=5000":                {1, "1,200 to 1,200 of 1,200"},
	} {
		page := s.do("GET", "/workflows/"+run.ID.String()+query, nil).want(t, 200, nil).body
		page = strings.ReplaceAll(page, "\u202f", ",")
		if n := strings.Count(page, "<tr data-row>"); n != want.rows || !strings.Contains(page, want.says) {
			t.Errorf("%q lists %d tasks, want %d and that it says %q", query, n, want.rows, want.says)
		}
	}
	for _, query := range []string{"?from=0", "?from=x", "?state=none"} {
		s.do("GET", "/workflows/"+run.ID.String()+query, nil).want(t, 400, nil)
	}
}

func TestWorkflowsGoThroughTheAPIAndThePage(t *testing.T) {
	s, f := filled(t)
	var w server.Workflow
	s.do("GET", "/api/v1/workflows/"+f.Workflow.String(), nil).want(t, 200, &w)
	if len(w.Tasks) != 7 || !w.Done || w.States["discarded"] != 1 || w.States["cancelled"] != 2 ||
		w.States["completed"] != 4 {
		t.Errorf("%+v", w)
	}
	page := s.do("GET", "/workflows/"+f.Workflow.String(), nil).want(t, 200, nil).body
	if strings.Count(page, `class="node `) != 7 || strings.Count(page, `class="edge `) != 7 ||
		!strings.Contains(page, `class="node discarded"`) {
		t.Error("the graph is not the workflow")
	}
	run := s.do("GET", "/workflows/"+f.Run.String(), nil).want(t, 200, nil).body
	if strings.Count(run, `class="node completed"`) != 3 || strings.Count(run, `class="edge `) != 2 {
		t.Error("the stages of a run do not follow each other")
	}
	var list server.WorkflowList
	s.do("GET", "/api/v1/workflows", nil).want(t, 200, &list)
	if len(list.Workflows) != 7 || list.Next != "" || list.Looked < 100 {
		t.Errorf("%d of 7: %+v", len(list.Workflows), list)
	}
	failed := func() { // may be called again
		eventually(t, func() bool {
			w = server.Workflow{}
			s.do("GET", "/api/v1/workflows/"+f.Workflow.String(), nil).want(t, 200, &w)
			return w.States["discarded"] == 1 && w.States["cancelled"] == 2
		})
	}
	var edited server.WorkflowEdited
	s.do("POST", "/api/v1/workflows/"+f.Workflow.String()+"/retry", nil).want(t, 200, &edited)
	if edited.Changed != 3 {
		t.Error(edited)
	}
	failed()
	s.do("POST", "/api/v1/workflows/"+f.Workflow.String()+"/retry", object{"from": "nothing"}).problem(t, 404, "not_found")
	for _, task := range w.Tasks {
		if task.State == "discarded" {
			s.do("POST", "/api/v1/workflows/"+f.Workflow.String()+"/retry", object{"from": task.Name}).want(t, 200, &edited)
			if edited.Changed != 3 { // the task and the two that it kept from running
				t.Error(edited)
			}
		}
	}
	failed()
	s.post("/workflows/"+f.Workflow.String()+"/retry", "").want(t, 303, nil)

	var made server.WorkflowRun
	s.do("POST", "/api/v1/workflows", object{"tasks": []object{{"name": "a", "kind": "k", "queue": "nobody"},
		{"name": "b", "kind": "k", "queue": "nobody", "after": []string{"a"}}}}).want(t, 201, &made)
	if len(made.Tasks) != 2 {
		t.Error(made)
	}
	s.post("/workflows/"+made.ID+"/cancel", "").want(t, 200, nil) // asks for confirmation
	s.do("POST", "/api/v1/workflows/"+made.ID+"/cancel", nil).want(t, 200, &edited)
	if edited.Changed != 2 {
		t.Error(edited)
	}
	for _, bad := range []object{{"tasks": []object{}},
		{"tasks": []object{{"name": "a", "kind": "k", "after": []string{"a"}}}},
		{"tasks": []object{{"name": "a", "kind": "k", "after": []string{"b"}}}},
		{"tasks": []object{{"name": "a", "kind": "k"}, {"name": "a", "kind": "k"}}},
		{"tasks": []object{{"name": "a", "kind": "k", "nonsense": 1}}}} {
		if a := s.do("POST", "/api/v1/workflows", bad); a.status != 400 && a.status != 422 {
			t.Errorf("%v: %d %s", bad, a.status, a.body)
		}
	}
	s.do("GET", "/api/v1/workflows/"+tusk.NewID().String(), nil).problem(t, 404, "not_found")
	s.do("GET", "/workflows/"+tusk.NewID().String(), nil).want(t, 404, nil)

	var pipelines server.PipelineList
	eventually(t, func() bool {
		s.do("GET", "/api/v1/pipelines", nil).want(t, 200, &pipelines)
		return len(pipelines.Pipelines) == 1
	})
	if p := pipelines.Pipelines[0]; p.Name != "ingest" || len(p.Stages) != 3 || p.Stages[1].Kind != "ingest.parse" {
		t.Errorf("%+v", p)
	}
	if stage := pipelines.Pipelines[0].Stages[1]; stage.Stuck != "" || stage.Completed == 0 ||
		stage.Ran.Count != stage.Completed+stage.Failed {
		t.Errorf("%+v", stage)
	}
	s.do("POST", "/api/v1/queues/ingest.parse/pause", nil).want(t, 200, nil)
	s.enqueue(object{"kind": "ingest.parse", "queue": "ingest.parse", "delay": "1h"})
	s.do("GET", "/api/v1/pipelines", nil).want(t, 200, &pipelines)
	if stage := pipelines.Pipelines[0].Stages[1]; stage.Stuck != "its queue is paused" || !stage.Paused ||
		stage.Tasks["scheduled"] != 1 {
		t.Errorf("%+v", stage)
	}
	if page := s.do("GET", "/pipelines", nil).want(t, 200, nil).body; strings.Count(page,
		"stuck: its queue is paused") != 1 {
		t.Error("the page does not say why a stage is stuck")
	}
	s.do("DELETE", "/api/v1/pipelines/ingest", nil).want(t, 204, nil)
	s.do("DELETE", "/api/v1/pipelines/ingest", nil).problem(t, 404, "not_found")
}

func TestWallsStandAroundWorkflowsAndTenants(t *testing.T) {
	s, f := filled(t)
	mine := s.tokenFor(access.Token{Name: "acme", Role: access.Operator, Tenants: []string{"acme"}})
	s.as(mine, "GET", "/api/v1/workflows/"+f.Workflow.String(), nil).problem(t, 404, "not_found")
	s.as(mine, "POST", "/api/v1/workflows/"+f.Workflow.String()+"/retry", nil).problem(t, 404, "not_found")
	s.as(mine, "GET", "/workflows/"+f.Workflow.String(), nil).want(t, 404, nil)
	s.as(mine, "POST", "/workflows/"+f.Workflow.String()+"/retry", nil).want(t, 404, nil)
	s.as(mine, "GET", "/api/v1/workflows/"+f.Run.String(), nil).want(t, 200, nil)
	var list server.WorkflowList
	s.as(mine, "GET", "/api/v1/workflows", nil).want(t, 200, &list)
	if len(list.Workflows) != 6 {
		t.Error(len(list.Workflows))
	}
	var tenants server.TenantList
	s.as(mine, "GET", "/api/v1/tenants", nil).want(t, 200, &tenants)
	if len(tenants.Tenants) != 1 || tenants.Tenants[0].Name != "acme" {
		t.Error(tenants)
	}
	s.as(mine, "GET", "/tenants/umbrella", nil).want(t, 404, nil)
	if body := s.as(mine, "GET", "/tenants", nil).want(t, 200, nil).body; strings.Contains(body, "umbrella") {
		t.Error("a tenant sees another's name")
	}
	for method, path := range map[string]string{"PUT": "/api/v1/limits/sync", "DELETE": "/api/v1/limits/sync",
		"GET": "/api/v1/limits"} {
		s.as(mine, method, path, object{}).problem(t, 403, "forbidden")
	}
	s.as(mine, "POST", "/api/v1/workflows",
		object{"tasks": []object{{"name": "a", "kind": "k", "tenant": "umbrella"}}}).problem(t, 403, "forbidden")
	// A workflow that is partly out of bounds is not changed.
	half := s.tokenFor(access.Token{Name: "half", Role: access.Operator, Queues: []string{"ingest.fetch"}})
	s.as(half, "POST", "/api/v1/workflows/"+f.Run.String()+"/retry", nil).problem(t, 403, "forbidden")
	s.as(half, "POST", "/workflows/"+f.Run.String()+"/retry", nil).want(t, 403, nil)
}

func TestThePageOfTurnsSaysThatItSearchesTheFirstGroups(t *testing.T) {
	s := start(t)
	for _, queue := range []string{"busy", "sync"} {
		s.do("PUT", "/api/v1/limits/"+queue+"?create=true", object{"concurrency": 1}).want(t, 200, nil)
	}
	tasks := make([]tusk.NewTask, query.TurnGroups)
	for i := range tasks {
		tasks[i] = tusk.NewTask{Args: tusk.RawArgs{Name: "k"},
			Options: &tusk.Options{Queue: "busy", Partition: fmt.Sprint(i)}}
	}
	if _, err := s.client.EnqueueMany(t.Context(), tasks); err != nil {
		t.Fatal(err)
	}
	s.enqueue(object{"kind": "k", "queue": "sync"})
	var turns server.TurnList
	s.do("GET", "/api/v1/limits/sync/turns", nil).want(t, 200, &turns)
	if !turns.More || len(turns.Turns) != 0 {
		t.Errorf("%+v", turns)
	}
	page := s.do("GET", "/limits?turns=sync", nil).want(t, 200, nil).body
	if strings.Contains(page, "Nobody has a turn") ||
		!strings.Contains(page, "groups that have waited longest in any queue") ||
		!strings.Contains(page, "?queue=sync&amp;state=pending") {
		t.Error("the page does not say that groups may be missing")
	}
}
