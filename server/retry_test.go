package server_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server"
)

// retried waits for the operation that a response or a page names, and returns the tasks with an error.
func (s *site) retried(id, fingerprint string) []tusk.TaskInfo {
	s.t.Helper()
	var o server.Bulk
	eventually(s.t, func() bool {
		s.do("GET", "/api/v1/bulk/"+id, nil).want(s.t, 200, &o)
		return o.State == "done"
	})
	if o.Changed == 0 {
		s.t.Errorf("%+v", o)
	}
	tasks, err := s.client.List(s.t.Context(), tusk.Filter{Fingerprint: fingerprint, Limit: 100})
	if err != nil || len(tasks) == 0 {
		s.t.Fatal(tasks, err)
	}
	return tasks
}

func TestAnErrorGroupIsRetriedWhenItIsToldTo(t *testing.T) {
	s, _ := filled(t)
	if err := s.client.PauseQueue(t.Context(), "default"); err != nil {
		t.Fatal(err)
	}
	var groups server.ErrorList
	s.do("GET", "/api/v1/errors?kind=charge_card", nil).want(t, 200, &groups)
	fingerprint := groups.Errors[0].Fingerprint
	path, at := "/api/v1/errors/"+fingerprint+"/retry", time.Now().Add(48*time.Hour).Truncate(time.Second).UTC()

	for body, code := range map[string]string{`{"at":"2026-01-31T12:00:00Z"}`: "unknown_field",
		`{"run_at":`: "invalid_json", `{"run_at":"soon"}`: "invalid_time", `{"per_second":-1}`: "out_of_range"} {
		s.do("POST", path, body).problem(t, 400, code)
	}
	s.do("POST", path, object{"run_at": at, "delay": "1h"}).problem(t, 422, "not_both")
	var o server.Bulk
	s.do("POST", path, object{"run_at": at, "per_second": 1000}).want(t, 202, &o)
	if o.PerSecond != 1000 {
		t.Errorf("%+v", o)
	}
	for _, task := range s.retried(o.ID, fingerprint) {
		if !task.RunAt.Equal(at) {
			t.Errorf("it runs at %v, not at %v", task.RunAt, at)
		}
	}
	s.do("POST", path, object{"delay": "30m"}).want(t, 202, &o)

	// The page asks when and how fast to retry.
	ask := s.post("/errors/"+fingerprint+"/retry", "").want(t, 200, nil).body
	if !strings.Contains(ask, "Retry at") || !strings.Contains(ask, `name="per_second"`) {
		t.Error(ask)
	}
	s.post("/errors/"+fingerprint+"/retry", form("confirm", "yes", "retry_at", "soon")).want(t, 400, nil)
}

func TestTasksThatMatchAreRetriedWhenThePageIsToldTo(t *testing.T) {
	s, _ := filled(t)
	var groups server.ErrorList
	s.do("GET", "/api/v1/errors?kind=charge_card", nil).want(t, 200, &groups)
	fingerprint, at := groups.Errors[0].Fingerprint, time.Now().Add(48*time.Hour).Truncate(time.Minute).UTC()
	said := []string{"scope", "all", "action", "retry", "query", "fingerprint=" + fingerprint,
		"retry_at", at.Format("2006-01-02T15:04")}
	ask := s.post("/tasks/selected", form(said...)).want(t, 200, nil).body
	for _, want := range []string{`name="retry_at" value="` + at.Format("2006-01-02T15:04") + `"`, `name="per_second"`,
		"They run at " + at.Format(time.RFC3339)} {
		if !strings.Contains(ask, want) {
			t.Errorf("%s is missing in %s", want, ask)
		}
	}
	done := s.post("/bulk", form(append(said, "confirm", "yes")...)).want(t, http.StatusSeeOther, nil)
	_, id, _ := strings.Cut(done.header.Get("Location"), "/bulk/")
	id, _, _ = strings.Cut(id, "?")
	for _, task := range s.retried(id, fingerprint) {
		if task.State != tusk.StateCompleted && task.State != tusk.StateCancelled && !task.RunAt.Equal(at) {
			t.Errorf("%v runs at %v, not at %v", task.State, task.RunAt, at)
		}
	}
}

func TestARouteWithoutABodyRefusesOneThatSaysSomething(t *testing.T) {
	s := start(t)
	described, err := server.OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths map[string]map[string]struct {
			RequestBody any `json:"requestBody"`
		} `json:"paths"`
	}
	if err := json.Unmarshal(described, &doc); err != nil {
		t.Fatal(err)
	}
	for _, r := range server.Routes() {
		if doc.Paths[r.Path][strings.ToLower(r.Method)].RequestBody != nil {
			continue
		}
		path := strings.NewReplacer("{upload}", tusk.NewID().String(), "{sha256}", strings.Repeat("0", 64)).Replace(
			filledPath(r.Path))
		s.do(r.Method, path, `{"at":"2026-01-31T12:00:00Z"}`).problem(t, 400, "unknown_field")
		s.do(r.Method, path, `{`).problem(t, 400, "invalid_json")
	}
	// An empty object is harmless, and so is an empty body of unknown length.
	s.do("POST", "/api/v1/queues/default/pause?create=true", `{}`).want(t, 200, nil)
	for _, path := range []string{"/queues/default/resume", "/tasks/" + tusk.NewID().String() + "/cancel"} {
		unknown := struct{ io.Reader }{strings.NewReader("")}
		r, err := http.NewRequestWithContext(t.Context(), "POST", s.URL+"/api/v1"+path, unknown)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+s.token)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != 200 && answer.StatusCode != 404 {
			t.Error(path, answer.Status)
		}
	}
}
