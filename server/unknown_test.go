package server_test

import (
	"strings"
	"testing"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/access"
)

// An action on something that does not exist fails, because the name is probably misspelt.
func TestWhatIsDoneToNothingIsNotFound(t *testing.T) {
	s := start(t)
	id := tusk.NewID().String()
	for _, route := range []string{
		"POST /errors/zzz/retry", "POST /queues/zzz/resume", "POST /queues/zzz/pause",
		"POST /tasks/" + id + "/retry", "POST /bulk/" + id + "/cancel",
		"DELETE /queues/zzz", "DELETE /pipelines/zzz", "POST /workflows/" + id + "/cancel",
		"POST /workflows/" + id + "/retry", "DELETE /schedules/zzz", "POST /schedules/zzz/pause",
		"POST /schedules/zzz/resume", "POST /schedules/zzz/run", "POST /workers/" + id + "/quiet",
		"POST /workers/" + id + "/wake", "POST /endpoints/zzz/rotate", "DELETE /endpoints/zzz",
		"DELETE /alerts/zzz", "POST /alerts/zzz/test", "DELETE /hooks/zzz", "DELETE /users/zzz",
		"DELETE /tokens/" + id, "DELETE /limits/zzz", "DELETE /queues/zzz/aging", "DELETE /queues/zzz/retention",
	} {
		method, path, _ := strings.Cut(route, " ")
		s.do(method, "/api/v1"+path, nil).want(t, 404, nil)
	}
	if p := s.do("POST", "/api/v1/errors/zzz/retry", nil).problem(t, 404, "not_found"); !strings.Contains(p.Detail,
		"GET /api/v1/errors") {
		t.Error(p.Detail)
	}
	operator := s.tokenFor(access.Token{Name: "acme", Role: access.Operator, Tenants: []string{"acme"}})
	s.as(operator, "POST", "/api/v1/errors/zzz/retry", nil).problem(t, 404, "not_found")
}
