package server_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tuskqueue/tusk/server"
	"github.com/tuskqueue/tusk/server/access"
)

// The limit of a list of errors counts only those that the caller may see.
func TestNewerErrorsOfOthersPushNobodysOwnOffTheList(t *testing.T) {
	s := start(t)
	fail := func(queue, text string) {
		t.Helper()
		s.enqueue(object{"kind": "k", "queue": queue})
		lease := s.lease(object{"queues": []string{queue}, "wait": "5s"})[0].LeaseID
		s.do("POST", "/api/v1/lease/fail", object{"lease_id": lease, "error": text, "discard": true}).want(t, 200, nil)
	}
	fail("a.x", "mine")
	fail("a.x", "mine as well")
	for i := range 3 {
		fail("b.x", "another of"+strings.Repeat("x", i+1))
	}
	bound := s.tokenFor(access.Token{Name: "a", Role: access.Viewer, Queues: []string{"a.*"}})
	for limit, want := range map[int]string{1: "1 true", 2: "2 false", 100: "2 false"} {
		var list server.ErrorList
		s.as(bound, "GET", fmt.Sprint("/api/v1/errors?limit=", limit), nil).want(t, 200, &list)
		if got := fmt.Sprint(len(list.Errors), " ", list.More); got != want {
			t.Errorf("limit %d: %s, want %s", limit, got, want)
		}
		for _, e := range list.Errors {
			if e.Queue != "a.x" {
				t.Errorf("told of %+v", e)
			}
		}
	}
}
