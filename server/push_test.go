package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server"
	"github.com/tuskqueue/tusk/server/push"
)

// called is a program at an endpoint.
type called struct {
	*httptest.Server
	mu     sync.Mutex
	bodies []push.Message
	header http.Header // of the latest
	latest []byte
}

func (c *called) signedBy(secret string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return push.Verify(secret, c.header, c.latest, time.Now()) == nil
}

// listen answers webhooks. A bad signature fails the test.
func listen(
	t *testing.T, secret func() string, answer func(w http.ResponseWriter, r *http.Request, m push.Message),
) *called {
	c := &called{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = push.Verify(secret(), r.Header, body, time.Now())
		}
		var m push.Message
		if err = errors.Join(err, json.Unmarshal(body, &m)); err != nil {
			t.Error(err)
		}
		if r.Header.Get("webhook-id") != m.Data.ID || r.Header.Get("Tusk-Task-Attempt") != fmt.Sprint(m.Data.Attempt) {
			t.Error(r.Header)
		}
		c.mu.Lock()
		c.bodies, c.header, c.latest = append(c.bodies, m), r.Header, body
		c.mu.Unlock()
		answer(w, r, m)
	}))
	t.Cleanup(c.Close)
	return c
}

func allowLoopback(c *server.Config) { c.PushAllow = []string{"127.0.0.1"} }

// register creates an endpoint and returns its secret.
func (s *site) register(queue, url string, about object) string {
	s.t.Helper()
	body := object{"url": url}
	for name, value := range about {
		body[name] = value
	}
	var made server.NewEndpoint
	s.do("PUT", "/api/v1/endpoints/"+queue, body).want(s.t, 200, &made)
	return made.Secret
}

func (s *site) enqueue(task object) string {
	s.t.Helper()
	var e server.EnqueuedTask
	s.do("POST", "/api/v1/tasks", task).want(s.t, 201, &e)
	return e.ID
}

func (s *site) awaitState(id, state string) server.TaskDetail {
	s.t.Helper()
	var d server.TaskDetail
	eventually(s.t, func() bool { d = s.task(id); return d.State == state })
	return d
}

func TestATaskIsSentToItsEndpointAndTheAnswerDecides(t *testing.T) {
	s := start(t, allowLoopback)
	var secret atomic.Value
	c := listen(t, func() string { return secret.Load().(string) },
		func(w http.ResponseWriter, r *http.Request, m push.Message) {
			switch m.Data.Kind {
			case "good":
				fmt.Fprint(w, `{"pages":12}`)
			case "plain":
				fmt.Fprint(w, `done`)
			case "bad":
				http.Error(w, "no such customer", http.StatusNotFound)
			case "moved":
				http.Redirect(w, r, "http://127.0.0.1:1/elsewhere", http.StatusFound)
			}
		})
	secret.Store(s.register("hooks", c.URL+"/x?token=k3y", nil))
	if !strings.HasPrefix(secret.Load().(string), "whsec_") {
		t.Fatal(secret.Load())
	}
	task := func(kind string, more object) object {
		o := object{"kind": kind, "queue": "hooks", "args": json.RawMessage(`{"big":12345678901234567890}`),
			"max_attempts": 1}
		for name, value := range more {
			o[name] = value
		}
		return o
	}
	d := s.awaitState(s.enqueue(task("good", object{"tags": []string{"a"}, "metadata": object{"m": "1"}})), "completed")
	if string(d.Output) != `{"pages":12}` {
		t.Errorf("%s", d.Output)
	}
	if m := c.bodies[0]; m.Type != "task" || string(m.Data.Args) != `{"big":12345678901234567890}` ||
		m.Data.Tags[0] != "a" || m.Data.Metadata["m"] != "1" || m.Data.Max != 1 {
		t.Errorf("%+v", m)
	}
	s.awaitState(s.enqueue(task("plain", nil)), "completed")
	d = s.awaitState(s.enqueue(task("bad", nil)), "discarded")
	if got := d.Attempts[0].Error; !strings.Contains(got, "404 Not Found: no such customer") ||
		strings.Contains(got, "k3y") {
		t.Error(got)
	}
	d = s.awaitState(s.enqueue(task("moved", nil)), "discarded")
	if got := d.Attempts[0].Error; !strings.Contains(got, "302 Found") {
		t.Error("a redirect is followed:", got)
	}
	// Retries follow the task's own settings.
	d = s.awaitState(
		s.enqueue(task("bad", object{"max_attempts": 3, "backoff": object{"shape": "constant", "base": "1h"}})), "retryable")
	if time.Until(d.RunAt) < 50*time.Minute || d.Attempt != 1 {
		t.Errorf("%+v", d)
	}
}

func TestASecretIsShownOnceAndReplacedWithoutAGap(t *testing.T) {
	var log safeBuffer
	s := start(t, allowLoopback, func(c *server.Config) { c.Logger = log.logger() })
	var secret atomic.Value
	c := listen(t, func() string { return secret.Load().(string) },
		func(http.ResponseWriter, *http.Request, push.Message) {})
	first := s.register("hooks", c.URL, nil)
	secret.Store(first)
	if again := s.register("hooks", c.URL, object{"concurrency": 3}); again != "" {
		t.Error("a change shows the secret")
	}
	s.awaitState(s.enqueue(object{"kind": "k", "queue": "hooks"}), "completed")
	var made server.NewEndpoint
	s.do("POST", "/api/v1/endpoints/hooks/rotate", nil).want(t, 200, &made)
	if made.Secret == first || made.Endpoint.RotatedAt.IsZero() || made.Endpoint.Concurrency != 3 {
		t.Errorf("%+v", made)
	}
	s.awaitState(s.enqueue(object{"kind": "k", "queue": "hooks"}), "completed") // the first secret signs for a day
	eventually(t, func() bool {
		s.awaitState(s.enqueue(object{"kind": "k", "queue": "hooks"}), "completed")
		return c.signedBy(made.Secret)
	})
	for _, path := range []string{"/api/v1/endpoints", "/api/v1/endpoints/hooks", "/endpoints",
		"/api/v1/audit", "/audit"} {
		if body := s.do("GET", path, nil).want(t, 200, nil).body; strings.Contains(body, "whsec_") {
			t.Errorf("%s shows a secret", path)
		}
	}
	if strings.Contains(log.String(), "whsec_") {
		t.Error("a secret is logged")
	}
	page := s.do("POST", "/endpoints", url.Values{"queue": {"other"}, "url": {c.URL}}.Encode(), "Content-Type",
		"application/x-www-form-urlencoded").want(t, 200, nil).body
	if strings.Count(page, "whsec_") != 1 {
		t.Error("the page of a new endpoint does not show its secret once")
	}
	s.do("DELETE", "/api/v1/endpoints/hooks", nil).want(t, 204, nil)
	s.do("DELETE", "/api/v1/endpoints/hooks", nil).problem(t, 404, "not_found")
}

func TestAnEndpointThatAsksForAPauseGetsOne(t *testing.T) {
	s := start(t, allowLoopback)
	var secret atomic.Value
	c := listen(t, func() string { return secret.Load().(string) },
		func(w http.ResponseWriter, _ *http.Request, _ push.Message) {
			w.Header().Set("Retry-After", "3000")
			w.WriteHeader(http.StatusTooManyRequests)
		})
	secret.Store(s.register("hooks", c.URL, object{"concurrency": 1}))
	var ids []string
	for range 5 {
		ids = append(ids, s.enqueue(object{"kind": "k", "queue": "hooks"}))
	}
	var e server.Endpoint
	eventually(t, func() bool {
		s.do("GET", "/api/v1/endpoints/hooks", nil).want(t, 200, &e)
		return e.Trouble != "" && e.Running == 0
	})
	if until := time.Until(e.PausedUntil); until < 40*time.Minute || until > 50*time.Minute {
		t.Errorf("%+v", e)
	}
	retryable, available := 0, 0
	for _, id := range ids {
		switch d := s.task(id); d.State {
		case "retryable":
			if retryable++; time.Until(d.RunAt) < 40*time.Minute {
				t.Errorf("%+v", d)
			}
		case "available":
			available++
		}
	}
	if retryable != 1 || available != 4 {
		t.Errorf("%d were sent, %d were left alone", retryable, available)
	}
}

func TestAnOutageDoesNotUseUpAllAttempts(t *testing.T) {
	s := start(t, allowLoopback)
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	s.register("hooks", gone.URL, object{"concurrency": 50})
	for range 50 {
		s.enqueue(object{"kind": "k", "queue": "hooks", "max_attempts": 1})
	}
	var e server.Endpoint
	eventually(t, func() bool {
		s.do("GET", "/api/v1/endpoints/hooks", nil).want(t, 200, &e)
		return e.Trouble != ""
	})
	// The first claim is as large as allowed; then tasks come one at a time.
	eventually(t, func() bool {
		tasks, err := s.client.List(t.Context(),
			tusk.Filter{Queues: []string{"hooks"}, States: []tusk.State{tusk.StateRunning}})
		return err == nil && len(tasks) <= 1
	})
	before := s.count("hooks", tusk.StateDiscarded)
	later := s.enqueue(object{"kind": "later", "queue": "hooks", "max_attempts": 1})
	for range 3 {
		s.enqueue(object{"kind": "k", "queue": "hooks", "max_attempts": 1})
	}
	eventually(t, func() bool { return s.count("hooks", tusk.StateDiscarded) > before })
	if d := s.task(later); d.State == "discarded" && strings.Contains(d.Attempts[0].Error, "http://") {
		t.Error(d.Attempts[0].Error)
	}
	if n := s.count("hooks", tusk.StateDiscarded); n > before+2 {
		t.Errorf("%d of the later ones were sent at once", n-before)
	}
}

func (s *site) count(queue string, state tusk.State) int {
	s.t.Helper()
	tasks, err := s.client.List(s.t.Context(), tusk.Filter{Queues: []string{queue}, States: []tusk.State{state},
		Limit: 1000})
	if err != nil {
		s.t.Fatal(err)
	}
	return len(tasks)
}

func TestACallMayTakeLongAndCanBeCancelled(t *testing.T) {
	s := start(t, allowLoopback)
	release := make(chan struct{})
	var secret atomic.Value
	c := listen(t, func() string { return secret.Load().(string) },
		func(_ http.ResponseWriter, r *http.Request, m push.Message) {
			if m.Data.Kind == "stuck" {
				<-r.Context().Done()
				return
			}
			<-release
		})
	secret.Store(s.register("hooks", c.URL, nil))
	stuck, timed, long := s.enqueue(object{"kind": "stuck", "queue": "hooks"}),
		s.enqueue(object{"kind": "stuck", "queue": "hooks", "timeout": "1s", "max_attempts": 1}),
		s.enqueue(object{"kind": "long", "queue": "hooks"})
	for _, id := range []string{stuck, long} {
		s.awaitState(id, "running")
	}
	s.do("POST", "/api/v1/tasks/"+stuck+"/cancel", nil).want(t, 200, nil)
	s.awaitState(stuck, "cancelled")
	if d := s.awaitState(timed, "discarded"); !strings.Contains(d.Attempts[0].Error, "timed out after 1s") {
		t.Error(d.Attempts[0].Error)
	}
	close(release)
	s.awaitState(long, "completed")
}

func TestAnEndpointMayEndTheTaskLater(t *testing.T) {
	s := start(t, allowLoopback)
	var secret atomic.Value
	leases := make(chan string, 1)
	c := listen(t, func() string { return secret.Load().(string) },
		func(w http.ResponseWriter, _ *http.Request, m push.Message) {
			w.WriteHeader(http.StatusAccepted)
			leases <- m.Data.LeaseID
		})
	secret.Store(s.register("hooks", c.URL, nil))
	id := s.enqueue(object{"kind": "k", "queue": "hooks"})
	lease := <-leases
	s.do("POST", "/api/v1/lease/extend", object{"lease_id": lease, "lease": "2m"}).want(t, 200, nil)
	s.do("POST", "/api/v1/lease/complete", object{"lease_id": lease, "output": 7}).want(t, 200, nil)
	if d := s.awaitState(id, "completed"); string(d.Output) != "7" {
		t.Errorf("%s", d.Output)
	}
}

func TestAServerThatStopsLetsCallsEnd(t *testing.T) {
	client := newClient(t, newMemory())
	s, err := server.New(client, server.Config{PushAllow: []string{"127.0.0.1"}, Logger: discard()})
	if err != nil {
		t.Fatal(err)
	}
	begun, release := make(chan struct{}), make(chan struct{})
	c := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { close(begun); <-release }))
	t.Cleanup(c.Close)
	book, err := push.NewBook(client.Store(), nil, "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := book.Put(t.Context(), push.Endpoint{Queue: "hooks", URL: c.URL}, "test"); err != nil {
		t.Fatal(err)
	}
	e, err := client.Enqueue(t.Context(), tusk.RawArgs{Name: "k", JSON: []byte("{}")}, &tusk.Options{Queue: "hooks"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()
	<-begun
	cancel()
	close(release)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if task, err := client.Get(t.Context(), e.ID); err != nil || task.State != tusk.StateCompleted {
		t.Error(task.State, err)
	}
}
