package server_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tuskqueue/tusk/server"
	"github.com/tuskqueue/tusk/server/herald"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

// stateless is a store that refuses to read the states of endpoints while it is broken.
type stateless struct {
	*memory.Store
	broken atomic.Bool
}

func (s *stateless) Records(ctx context.Context, f store.RecordFilter) ([]store.Record, error) {
	if f.Kind == herald.EndpointState && s.broken.Load() {
		return nil, errors.New("broken")
	}
	return s.Store.Records(ctx, f)
}

func TestASecretIsShownOrNotReplaced(t *testing.T) {
	states := &stateless{Store: memory.New()}
	s := startOn(t, newClient(t, states))
	s.register("hooks", "https://app.example.com/tusk", nil)
	states.broken.Store(true)
	s.do("POST", "/api/v1/endpoints/hooks/rotate", nil).problem(t, http.StatusInternalServerError, "internal")
	states.broken.Store(false)
	var e server.Endpoint
	s.do("GET", "/api/v1/endpoints/hooks", nil).want(t, 200, &e)
	if !e.RotatedAt.IsZero() {
		t.Error("the API has replaced the secret without showing the new one")
	}
	states.broken.Store(true)
	page := s.do("POST", "/endpoints/hooks/rotate", "", "Content-Type", "application/x-www-form-urlencoded").
		want(t, 200, nil).body
	if strings.Count(page, "whsec_") != 1 {
		t.Error("the page has replaced the secret without showing the new one")
	}
}

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
