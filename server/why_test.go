package server_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server"
	"github.com/tuskqueue/tusk/server/access"
)

func TestTheAPIAndThePageSayWhyATaskDoesNotRun(t *testing.T) {
	s := start(t)
	added, err := s.client.Enqueue(t.Context(), tusk.RawArgs{Name: "k"}, &tusk.Options{Tenant: "acme"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.client.PauseQueue(t.Context(), "default"); err != nil {
		t.Fatal(err)
	}
	a := s.do("GET", "/api/v1/tasks/"+added.ID.String()+"/why", nil)
	var told server.Why
	if err := json.Unmarshal([]byte(a.body), &told); err != nil || a.status != 200 {
		t.Fatal(a.status, a.body, err)
	}
	if len(told.Reasons) != 2 || told.Reasons[0].Code != "paused" || told.Reasons[0].Fix != "tusk queues resume default" {
		t.Errorf("%s", a.body)
	}
	if page := s.do("GET", "/tasks/"+added.ID.String(), nil); !strings.Contains(page.body,
		"its queue default is paused") ||
		!strings.Contains(page.body, "<code>tusk queues resume default</code>") {
		t.Errorf("the page does not say so:\n%s", page.body)
	}
	other := s.tokenFor(access.Token{Name: "other", Role: access.Viewer, Tenants: []string{"other"}})
	if a := s.as(other, "GET", "/api/v1/tasks/"+added.ID.String()+"/why", nil); a.status != 404 {
		t.Errorf("a token of another tenant: %d %s", a.status, a.body)
	}
}

func TestTheAPIAndThePageSayWhyAScheduleDoesNotFire(t *testing.T) {
	s := start(t)
	err := s.client.PutSchedule(t.Context(), tusk.Schedule{Name: "often", Spec: "@every 15m",
		Args: tusk.RawArgs{Name: "k"}, Options: &tusk.Options{Tenant: "acme"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.client.PauseSchedule(t.Context(), "often"); err != nil {
		t.Fatal(err)
	}
	a := s.do("GET", "/api/v1/schedules/often/why", nil)
	var told server.ScheduleWhy
	if err := json.Unmarshal([]byte(a.body), &told); err != nil || a.status != 200 {
		t.Fatal(a.status, a.body, err)
	}
	if told.Name != "often" || told.Reasons[0].Code != "schedule_paused" ||
		told.Reasons[0].Fix != "tusk schedules resume often" {
		t.Errorf("%s", a.body)
	}
	if page := s.do("GET", "/schedules/often", nil); !strings.Contains(page.body, "it is paused: ticks that pass") ||
		!strings.Contains(page.body, "<code>tusk schedules resume often</code>") {
		t.Errorf("the page does not say so:\n%s", page.body)
	}
	other := s.tokenFor(access.Token{Name: "other", Role: access.Viewer, Tenants: []string{"other"}})
	if a := s.as(other, "GET", "/api/v1/schedules/often/why", nil); a.status != 404 {
		t.Errorf("a token of another tenant: %d %s", a.status, a.body)
	}
}
