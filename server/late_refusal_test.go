package server

import (
	"net/http/httptest"
	"testing"

	"github.com/tuskqueue/tusk/server/access"
)

// What a route has done cannot be refused any more: the caller would not learn what came of it.
func TestWhatIsDoneIsAnsweredHoweverBusyTheCallerIs(t *testing.T) {
	r := does(Route{Method: "POST", Path: "/x", Need: access.Enqueue, Stream: true},
		func(c *call, _ struct{}) (Part, error) { return Part{Bytes: 7}, nil })
	s := &Server{rooms: newRooms(1<<10, 1)}
	s.rooms.working = newRoom(1, 1, 0)
	if _, full := s.rooms.working.queue("me", 1); full != "" {
		t.Fatal("no place")
	}
	c := &call{Server: s, w: httptest.NewRecorder(), r: httptest.NewRequest("POST", "/x", nil), route: &r,
		who: access.Identity{ID: "me"}}
	if body, err := r.run(c); err != nil || string(body) != `{"upload":"","sha256":"","bytes":7}` {
		t.Errorf("%s %v", body, err)
	}
}
