package server_test

import (
	"strings"
	"testing"

	"github.com/tuskqueue/tusk/server"
	"github.com/tuskqueue/tusk/server/herald"
	"github.com/tuskqueue/tusk/store"
)

func TestAFailureToReachAnEndpointIsShownByAllServers(t *testing.T) {
	s := start(t)
	s.register("hooks", "https://app.example.com/tusk", nil)
	get := func() (e server.Endpoint) {
		s.do("GET", "/api/v1/endpoints/hooks", nil).want(t, 200, &e)
		return e
	}
	page := func() string { return s.do("GET", "/endpoints", nil).want(t, 200, nil).body }
	if f := get().LastFailure; f != nil || strings.Contains(page(), "not reached</span>") {
		t.Errorf("%+v", f)
	}
	r := store.Record{Kind: herald.EndpointState, Name: "hooks",
		Body: []byte(`{"failed":"2026-01-31T12:00:00Z","error":"no route"}`)}
	if _, _, err := s.client.Store().PutRecord(t.Context(), store.PutRecord{Record: r}); err != nil {
		t.Fatal(err)
	}
	if f := get().LastFailure; f == nil || !f.Lasts || f.Error != "no route" || f.At.Year() != 2026 {
		t.Errorf("%+v", f)
	}
	if text := page(); !strings.Contains(text, "not reached</span>") || !strings.Contains(text, "no route") {
		t.Error(text)
	}
	s.do("DELETE", "/api/v1/endpoints/hooks", nil).want(t, 204, nil)
	s.register("hooks", "https://app.example.com/tusk", nil)
	if f := get().LastFailure; f != nil {
		t.Errorf("a new endpoint has the failure of the one before: %+v", f)
	}
}
