package server_test

import (
	"slices"
	"testing"

	"github.com/tuskqueue/tusk/server"
	"github.com/tuskqueue/tusk/server/access"
)

// shops makes two tokens of one name, each for a tenant of its own.
func (s *site) shops(role access.Role) (acme, umbrella string) {
	return s.tokenFor(access.Token{Name: "shop", Role: role, Tenants: []string{"acme"}}),
		s.tokenFor(access.Token{Name: "shop", Role: role, Tenants: []string{"umbrella"}})
}

func TestTokensOfOneNameShareNoIdempotencyKeys(t *testing.T) {
	s := start(t)
	acme, umbrella := s.shops(access.Producer)
	var first, second server.EnqueuedTask
	s.as(acme, "POST", "/api/v1/tasks", object{"kind": "k", "tenant": "acme"}, "Idempotency-Key", "order-1").want(t, 201, &first)
	s.as(umbrella, "POST", "/api/v1/tasks", object{"kind": "k", "tenant": "umbrella"}, "Idempotency-Key", "order-1").want(t, 201, &second)
	if first.ID == second.ID || s.task(first.ID).Tenant != "acme" || s.task(second.ID).Tenant != "umbrella" {
		t.Errorf("%+v, %+v", first, second)
	}
	again := s.as(umbrella, "POST", "/api/v1/tasks", object{"kind": "k", "tenant": "umbrella"}, "Idempotency-Key", "order-1").want(t, 201, &first)
	if first.ID != second.ID || again.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("repeated: %+v", first)
	}
}

func TestTokensOfOneNameOwnNoBulkOperationsOfEachOther(t *testing.T) {
	s := start(t)
	acme, umbrella := s.shops(access.Operator)
	var o server.Bulk
	s.as(acme, "POST", "/api/v1/bulk", object{"filter": object{"queue": []string{"q"}}, "action": "cancel", "per_second": 1}).want(t, 202, &o)
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

func TestTheAuditLogTellsTokensOfOneNameApart(t *testing.T) {
	s := start(t)
	acme, umbrella := s.shops(access.Operator)
	var me access.Identity
	s.as(acme, "GET", "/api/v1/me", nil).want(t, 200, &me)
	for _, token := range []string{acme, umbrella} {
		s.as(token, "POST", "/api/v1/bulk", object{"filter": object{"queue": []string{"q"}}, "action": "cancel"}).want(t, 202, nil)
	}
	for who, want := range map[string]int{me.ID: 1, "shop": 2, "token:0": 0} {
		var list server.AuditList
		s.do("GET", "/api/v1/audit?who="+who, nil).want(t, 200, &list)
		if len(list.Entries) != want {
			t.Errorf("%s: %+v, want %d", who, list.Entries, want)
		}
	}
}
