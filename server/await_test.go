package server_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server"
	"github.com/tuskqueue/tusk/server/access"
	"github.com/tuskqueue/tusk/store/memory"
)

// await requests a task as soon as it has ended. The answer comes on the channel.
func (s *site) await(token, id, wait string) <-chan answer {
	got := make(chan answer, 1)
	go func() { got <- s.as(token, "GET", "/api/v1/tasks/"+id+"?wait="+wait, nil) }()
	time.Sleep(200 * time.Millisecond) // it most likely waits now; the tests hold either way
	return got
}

func TestARequestWaitsForTheEndOfATask(t *testing.T) {
	for name, open := range engines {
		t.Run(name, func(t *testing.T) {
			s, d := startOn(t, newClient(t, open(t))), server.TaskDetail{}
			id := s.enqueue(object{"kind": "k"})
			got := s.await(s.token, id, "20s")
			lent := s.lease(object{"queues": []string{"default"}, "wait": "10s"})
			s.do("POST", "/api/v1/lease/complete", object{"lease_id": lent[0].LeaseID,
				"output": object{"ok": true, "password": "secret"}}).want(t, 200, nil)
			if (<-got).want(t, 200, &d); d.State != "completed" || string(d.Output) != `{"ok":true,"password":"[hidden]"}` {
				t.Errorf("%v %s", d.State, d.Output)
			}
			begun := time.Now()
			if s.do("GET", "/api/v1/tasks/"+id+"?wait=20s", nil).want(t, 200, &d); time.Since(begun) > 10*time.Second {
				t.Errorf("a task that had ended was waited for: %v", time.Since(begun))
			}
			id = s.enqueue(object{"kind": "k"})
			s.do("GET", "/api/v1/tasks/"+id+"?wait=300ms", nil).want(t, 200, &d)
			if d.State != "available" {
				t.Errorf("after the time: %v", d.State)
			}
			got = s.await(s.token, id, "20")
			s.do("DELETE", "/api/v1/tasks/"+id, nil).want(t, 200, nil)
			(<-got).problem(t, 404, "not_found")
		})
	}
}

func TestARequestMayWaitAsLongAsTheServerAllows(t *testing.T) {
	s, begun := start(t), time.Now()
	id := s.enqueue(object{"kind": "k"})
	var d server.TaskDetail
	s.do("GET", "/api/v1/tasks/"+id+"?wait=20s", nil).want(t, 200, &d)
	if d.State != "available" || time.Since(begun) < 20*time.Second {
		t.Errorf("%v after %v", d.State, time.Since(begun))
	}
}

func TestWaitingNeedsTheRightsOfReading(t *testing.T) {
	s := start(t)
	id := s.enqueue(object{"kind": "k", "tenant": "acme", "queue": "mail"})
	for wait, code := range map[string]string{"x": "invalid_duration", "": "invalid_duration", "-1s": "invalid_duration"} {
		s.do("GET", "/api/v1/tasks/"+id+"?wait="+wait, nil).problem(t, 400, code)
	}
	s.do("GET", "/api/v1/tasks/"+id+"?wait=21s", nil).problem(t, 422, "out_of_range")
	s.do("GET", "/api/v1/tasks/"+tusk.NewID().String()+"?wait=20s", nil).problem(t, 404, "not_found")
	stranger := s.tokenFor(access.Token{Name: "s", Role: access.Viewer, Tenants: []string{"other"}})
	s.as(stranger, "GET", "/api/v1/tasks/"+id+"?wait=20s", nil).problem(t, 404, "not_found")
	bound := s.tokenFor(access.Token{Name: "b", Role: access.Viewer, Queues: []string{"mail"}})
	got := s.await(bound, id, "20s")
	s.do("POST", "/api/v1/tasks/"+id+"/move", object{"queue": "else", "create": true}).want(t, 200, nil)
	s.do("POST", "/api/v1/tasks/"+id+"/cancel", nil).want(t, 200, nil)
	(<-got).problem(t, 404, "not_found")
	var made server.NewToken
	s.do("POST", "/api/v1/tokens", object{"name": "w", "role": "viewer"}).want(t, 201, &made)
	id = s.enqueue(object{"kind": "k"})
	got = s.await(made.Secret, id, "15s")
	s.do("DELETE", "/api/v1/tokens/"+made.Token.ID, nil).want(t, 204, nil)
	time.Sleep(2 * time.Second) // a revocation may take this long to arrive
	s.do("POST", "/api/v1/tasks/"+id+"/cancel", nil).want(t, 200, nil)
	(<-got).problem(t, 401, "unauthenticated")
}

func TestARequestThatWaitsIsAnsweredAtShutdown(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	client, err := tusk.NewClient(memory.New(), &tusk.ClientConfig{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s := startUntil(ctx, t, client)
	got, begun := s.await(s.token, s.enqueue(object{"kind": "k"}), "20s"), time.Now()
	cancel()
	var d server.TaskDetail
	if (<-got).want(t, 200, &d); d.State != "available" || time.Since(begun) > 10*time.Second {
		t.Errorf("%v after %v", d.State, time.Since(begun))
	}
}

func TestRequestsThatWaitLeaveThePlacesToOthers(t *testing.T) {
	s := start(t, func(c *server.Config) { c.Processors = 1 })
	id := s.enqueue(object{"kind": "k"})
	const many = 100
	ended := make(chan int, many)
	for range many {
		go func() { ended <- s.do("GET", "/api/v1/tasks/"+id+"?wait=20s", nil).status }()
	}
	time.Sleep(time.Second)
	begun := time.Now()
	s.do("POST", "/api/v1/tasks/"+id+"/cancel", nil).want(t, 200, nil)
	for range many {
		if status := <-ended; status != 200 {
			t.Fatal(status)
		}
	}
	if time.Since(begun) > 10*time.Second {
		t.Errorf("%d requests were answered after %v", many, time.Since(begun))
	}
}
