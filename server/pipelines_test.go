package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server"
	"github.com/tuskqueue/tusk/server/access"
	"github.com/tuskqueue/tusk/server/push"
)

var stages = object{"stages": []object{{"name": "fetch"},
	{"name": "parse", "max_attempts": 3, "backoff": object{"shape": "constant", "base": "1s"}},
	{"name": "index", "queue": "hooks"}, {"name": "store"}}}

// A run passes stages that are processed over HTTP and by a webhook.
func TestStagesAreRunInAnyLanguage(t *testing.T) {
	s := start(t, allowLoopback)
	var secret atomic.Value
	c := listen(t, func() string { return secret.Load().(string) },
		func(w http.ResponseWriter, _ *http.Request, m push.Message) {
			switch string(m.Data.Args) {
			case `{"ends":true}`:
				w.Header().Set("Tusk-Go-To", "")
			case `{"lost":true}`:
				w.Header().Set("Tusk-Go-To", "nowhere")
			default:
				w.Header().Set("Tusk-Go-To", "store")
			}
			fmt.Fprint(w, `{"indexed":true}`)
		})
	secret.Store(s.register("hooks", c.URL, nil))
	s.do("POST", "/api/v1/pipelines/ingest/start", object{}).problem(t, 404, "not_found")
	s.do("PUT", "/api/v1/pipelines/ingest", stages).want(t, 204, nil)
	var run server.EnqueuedTask
	s.do("POST", "/api/v1/pipelines/ingest/start",
		object{"input": object{"doc": 9}, "tenant": "acme", "tags": []string{"a"}, "key": "doc-9"}).want(t, 201, &run)
	s.do("POST", "/api/v1/pipelines/ingest/start", object{"key": "doc-9", "tenant": "acme"}).want(t, 200, nil)
	fetch := s.lease(object{"queues": []string{"ingest.fetch"}, "wait": "5s"})[0]
	s.do("POST", "/api/v1/lease/complete", object{"lease_id": fetch.LeaseID, "output": object{"page": 1}}).want(
		t, 200, nil)
	parse := s.lease(object{"queues": []string{"ingest.parse"}, "wait": "5s"})[0]
	if string(parse.Args) != `{"page":1}` || parse.Tenant != "acme" || parse.Max != 3 || parse.Tags[0] != "a" {
		t.Errorf("%+v", parse)
	}
	var batch server.LeaseResults
	s.do("POST", "/api/v1/lease/batch", object{
		"items": []object{{"action": "complete", "lease_id": parse.LeaseID, "output": 2}}}).want(t, 200, &batch)
	store := s.lease(object{"queues": []string{"ingest.store"}, "wait": "20s"})[0]
	if string(store.Args) != `{"indexed":true}` {
		t.Errorf("%s", store.Args)
	}
	s.do("POST", "/api/v1/lease/complete", object{"lease_id": store.LeaseID, "output": "stored"}).want(t, 200, nil)
	var flow server.Workflow
	s.do("GET", "/api/v1/workflows/"+run.ID, nil).want(t, 200, &flow)
	if !flow.Done || len(flow.Tasks) != 4 {
		t.Errorf("%+v", flow)
	}

	s.do("POST", "/api/v1/pipelines/ingest/start", object{"stage": "store"}).want(t, 201, nil)
	back := s.lease(object{"queues": []string{"ingest.store"}, "wait": "5s"})[0]
	s.do("POST", "/api/v1/lease/complete", object{"lease_id": back.LeaseID, "go_to": "parse"}).want(t, 200, nil)
	again := s.lease(object{"queues": []string{"ingest.parse"}, "wait": "5s"})[0]
	s.do("POST", "/api/v1/lease/complete", object{"lease_id": again.LeaseID, "go_to": "nowhere"}).problem(t, 422,
		"unknown_stage")
	if d := s.task(again.ID); d.State != "running" {
		t.Errorf("%+v", d)
	}
	s.do("POST", "/api/v1/lease/complete", object{"lease_id": again.LeaseID, "go_to": ""}).want(t, 200, nil)
	s.do("POST", "/api/v1/pipelines/ingest/start", object{"stage": "index", "input": object{"ends": true}}).want(
		t, 201, &run)
	s.awaitState(run.ID, "completed")
	s.do("GET", "/api/v1/workflows/"+run.ID, nil).want(t, 200, &flow)
	if !flow.Done || len(flow.Tasks) != 1 {
		t.Errorf("%+v", flow)
	}

	s.do("POST", "/api/v1/pipelines/ingest/start", object{"stage": "index", "input": object{"lost": true}}).want(
		t, 201, &run)
	if d := s.awaitState(run.ID, "discarded"); string(d.Output) != `{"indexed":true}` ||
		!strings.Contains(d.Attempts[0].Error, `"nowhere" is not in the pipeline ingest`) {
		t.Errorf("%+v", d)
	}

	plain := s.enqueue(object{"kind": "no.stage"})
	lent := s.lease(object{"queues": []string{"default"}, "wait": "5s"})[0]
	s.do("POST", "/api/v1/lease/complete", object{"lease_id": lent.LeaseID, "go_to": "store"}).problem(t, 422,
		"no_pipeline")
	s.do("POST", "/api/v1/lease/batch", object{"items": []object{{"action": "complete", "lease_id": lent.LeaseID,
		"go_to": "store"}}}).want(t, 200, &batch)
	if r := batch.Results[0]; r.OK || r.Code != "no_pipeline" {
		t.Errorf("%+v", r)
	}
	if d := s.task(plain); d.State != "running" {
		t.Errorf("%+v", d)
	}
}

func TestPipelinesThatAreRefused(t *testing.T) {
	s := start(t)
	for _, bad := range []object{{}, {"stages": []object{}}, {"stages": []object{{"name": "a"}, {"name": "a"}}},
		{"stages": []object{{"nam": "a"}}},
		{"stages": []object{{"name": "a", "backoff": object{"shape": "up"}}}},
		{"stages": []object{{"name": "a", "timeout": "soon"}}}} {
		if a := s.do("PUT", "/api/v1/pipelines/ingest", bad); a.status != 400 && a.status != 422 {
			t.Errorf("%v: %d %s", bad, a.status, a.body)
		}
	}
	s.do("PUT", "/api/v1/pipelines/ingest",
		object{"stages": []object{{"name": "a", "tenant": "acme"}, {"name": "b"}}}).want(t, 204, nil)
	s.do("POST", "/api/v1/pipelines/ingest/start", object{"stage": "c"}).problem(t, 422, "unknown_stage")

	acme := s.tokenFor(access.Token{Name: "acme", Role: access.Producer, Tenants: []string{"acme"}})
	s.as(acme, "PUT", "/api/v1/pipelines/ingest", stages).problem(t, 403, "forbidden")
	s.as(acme, "POST", "/api/v1/pipelines/ingest/start", object{}).want(t, 201, nil) // the stage's tenant is theirs
	s.as(acme, "POST", "/api/v1/pipelines/ingest/start", object{"tenant": "other"}).problem(t, 403, "forbidden")
	s.as(acme, "POST", "/api/v1/pipelines/ingest/start", object{"stage": "b"}).problem(t, 403, "forbidden")
	elsewhere := s.tokenFor(access.Token{Name: "elsewhere", Role: access.Producer, Queues: []string{"others"}})
	s.as(elsewhere, "POST", "/api/v1/pipelines/ingest/start", object{}).problem(t, 403, "forbidden")
	s.do("PUT", "/api/v1/pipelines/hidden",
		object{"stages": []object{{"name": "a", "queue": "q-4711", "tenant": "t-4711"}}}).want(t, 204, nil)
	for _, token := range []string{acme, elsewhere} {
		p := s.as(token, "POST", "/api/v1/pipelines/hidden/start", object{}).problem(t, 403, "forbidden")
		if strings.Contains(p.Detail, "4711") {
			t.Errorf("a refusal names what the caller did not: %s", p.Detail)
		}
	}
	if _, err := s.client.Pipeline(t.Context(), "ingest"); err != nil || tusk.MaxStages != 100 {
		t.Error(err)
	}
}
