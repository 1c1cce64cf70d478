package server_test

import (
	"context"
	"errors"
	"regexp"
	"sync/atomic"
	"testing"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

// writeOnly is a store from which nothing can be read once a record of a kind was written.
type writeOnly struct {
	*memory.Store
	after  atomic.Value // the kind
	broken atomic.Bool
}

func (s *writeOnly) PutRecord(ctx context.Context, p store.PutRecord) (int64, []store.Enqueued, error) {
	version, enqueued, err := s.Store.PutRecord(ctx, p)
	if err == nil && p.Record.Kind == s.after.Load() {
		s.broken.Store(true)
	}
	return version, enqueued, err
}

func (s *writeOnly) Records(ctx context.Context, f store.RecordFilter) ([]store.Record, error) {
	if s.broken.Load() {
		return nil, errors.New("broken")
	}
	return s.Store.Records(ctx, f)
}

func TestASecretIsShownWhateverFailsAfterItWasStored(t *testing.T) {
	states := &writeOnly{Store: memory.New()}
	s := startOn(t, newClient(t, states))
	const target = "https://app.example.com/tusk"
	posted := []string{"Content-Type", "application/x-www-form-urlencoded"}
	secret := regexp.MustCompile(`whsec_[A-Za-z0-9+/&#;=]{20}|tusk_[0-9a-f]{16}_[0-9a-f]{64}`)
	for _, c := range []struct {
		kind, method, path string
		body               any
		header             []string
	}{
		{"alert", "PUT", "/api/v1/alerts/api", object{"kind": "no_leader", "webhooks": []string{target}}, nil},
		{"alert", "POST", "/alerts", form("name", "page", "kind", "no_leader", "webhooks", target), posted},
		{"endpoint", "PUT", "/api/v1/endpoints/api", object{"url": target}, nil},
		{"endpoint", "POST", "/api/v1/endpoints/api/rotate", nil, nil},
		{"endpoint", "POST", "/endpoints", form("queue", "page", "url", target), posted},
		{"endpoint", "POST", "/endpoints/page/rotate", "", posted},
		{"hook", "PUT", "/api/v1/hooks/api", object{"url": target}, nil},
		{"token", "POST", "/api/v1/tokens", object{"name": "api", "role": "worker"}, nil},
		{"token", "POST", "/access/tokens", form("name", "page", "role", "worker"), posted},
	} {
		states.after.Store(c.kind)
		a := s.do(c.method, c.path, c.body, c.header...)
		if !states.broken.Load() {
			t.Errorf("%s %s has stored nothing", c.method, c.path)
		}
		states.after.Store("")
		states.broken.Store(false)
		if a.status/100 != 2 || len(secret.FindAllString(a.body, -1)) != 1 {
			t.Errorf("%s %s: status %d, and the secret is lost: %s", c.method, c.path, a.status, a.body)
		}
	}
}
