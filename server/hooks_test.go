package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server"
	"github.com/tuskqueue/tusk/server/hook"
	"github.com/tuskqueue/tusk/server/notify/notifytest"
	"github.com/tuskqueue/tusk/server/push"
)

// told is a receiver of events that refuses every third call after it has read it.
type told struct {
	*httptest.Server
	mu     sync.Mutex
	calls  int
	secret string
	ids    map[string]bool
	byTask map[string][]string // types, without repeated events
}

func listenTo(t *testing.T) *told {
	h := &told{ids: map[string]bool{}, byTask: map[string][]string{}}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		h.mu.Lock()
		defer h.mu.Unlock()
		var m hook.Message
		if err = errors.Join(err, json.Unmarshal(body, &m), push.Verify(h.secret, r.Header, body, time.Now())); err != nil ||
			r.Header.Get("webhook-id") != m.ID {
			t.Error(err, r.Header)
		}
		for _, e := range m.Events {
			if !h.ids[e.ID] {
				h.ids[e.ID] = true
				h.byTask[e.Task] = append(h.byTask[e.Task], strings.TrimPrefix(e.Type, "task."))
			}
		}
		if h.calls++; h.calls%3 == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *told) of(id tusk.ID) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.byTask[id.String()], " ")
}

type numbered struct{ N int }

func (numbered) Kind() string { return "numbered" }

func TestEndsOfTasksAreToldInOrderThoughServersDie(t *testing.T) {
	for name, open := range engines {
		t.Run(name, func(t *testing.T) {
			client := newClient(t, open(t))
			h := listenTo(t)
			sender := notifytest.Sender(t)
			book := hook.NewBook(client.Store(), nil, sender)
			var err error
			h.secret, _, err = book.Put(t.Context(), hook.Hook{Name: "all", URL: h.URL, Events: hook.Events()}, "test")
			if err != nil {
				t.Fatal(err)
			}
			// Servers die again and again, and others take over.
			over, stop := context.WithCancel(t.Context())
			dying := make(chan struct{})
			go func() {
				defer close(dying)
				for over.Err() == nil {
					alive, kill := context.WithTimeout(over, 700*time.Millisecond)
					hook.New(hook.NewBook(&mortal{Store: client.Store(), alive: alive}, nil, sender), discard(), 20*time.Millisecond,
						100*time.Millisecond).Run(alive)
					kill()
				}
			}()
			defer func() { stop(); <-dying }()

			mux := tusk.NewMux()
			var failing sync.Map
			tusk.Handle(mux, func(_ context.Context, task *tusk.Task[numbered]) error {
				if _, bad := failing.LoadAndDelete(task.Args.N); bad {
					return tusk.Discard(errors.New("bad"))
				}
				return nil
			})
			worker, err := tusk.NewWorker(client, mux, &tusk.WorkerConfig{Queues: []string{"q"}, Logger: discard()})
			if err != nil {
				t.Fatal(err)
			}
			working := make(chan error, 1)
			go func() { working <- worker.Run(over) }()
			defer func() { stop(); <-working }()
			var good, bad []tusk.ID
			for i := range 60 {
				if i%3 == 0 {
					failing.Store(i, true)
				}
				e, err := client.Enqueue(t.Context(), numbered{i}, &tusk.Options{Queue: "q"})
				if err != nil {
					t.Fatal(err)
				}
				if i%3 == 0 {
					bad = append(bad, e.ID)
				} else {
					good = append(good, e.ID)
				}
			}
			e, err := client.Enqueue(t.Context(), tusk.RawArgs{Name: "k"}, &tusk.Options{Queue: "nobody"})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := client.Cancel(t.Context(), e.ID, "not needed"); err != nil {
				t.Fatal(err)
			}
			eventually(t, func() bool {
				return !slices.ContainsFunc(bad, func(id tusk.ID) bool {
					task, err := client.Get(t.Context(), id)
					return err != nil || task.State != tusk.StateDiscarded
				})
			})
			for _, id := range bad { // they succeed the second time
				if err := client.Retry(t.Context(), id); err != nil {
					t.Fatal(err)
				}
			}
			t.Cleanup(func() {
				if t.Failed() {
					states, err := book.List(context.Background())
					t.Logf("%+v, %v, told %v", states, err, h.byTask)
				}
			})
			eventually(t, func() bool {
				return !slices.ContainsFunc(good, func(id tusk.ID) bool { return h.of(id) != "completed" }) &&
					!slices.ContainsFunc(bad, func(id tusk.ID) bool { return h.of(id) != "discarded completed" }) &&
					h.of(e.ID) == "cancelled"
			})
		})
	}
}

func TestAHookIsManagedByTheAPIAndADeadReceiverShows(t *testing.T) {
	dead := httptest.NewServer(http.NotFoundHandler())
	dead.Close()
	client := newClient(t, newMemory())
	s := startOn(t, client, quickAlerts)
	var made server.NewHook
	s.do("PUT", "/api/v1/hooks/crm", object{"url": dead.URL, "events": []string{"task.cancelled"}}).want(t, 200, &made)
	if !strings.HasPrefix(made.Secret, "whsec_") || time.Duration(made.Hook.Keep) != 24*time.Hour {
		t.Errorf("%+v", made)
	}
	enqueueTo(t, client, "q")
	cancelAll(t, client, "q")
	var h server.Hook
	eventually(t, func() bool { s.do("GET", "/api/v1/hooks/crm", nil).want(t, 200, &h); return h.Error != "" })
	if h.Told != 0 || h.Waiting.IsZero() || h.Failed.IsZero() || !strings.Contains(h.Error, "not reached") {
		t.Errorf("%+v", h)
	}
	for _, path := range []string{"/api/v1/hooks", "/alerts"} {
		if body := s.do("GET", path, nil).want(t, 200, nil).body; strings.Contains(body, "whsec_") ||
			!strings.Contains(body, "crm") {
			t.Errorf("%s: %s", path, body)
		}
	}
	s.do("PUT", "/api/v1/hooks/b", object{"url": "https://example.com", "queues": []string{"mial"}}).problem(t, 404,
		"unknown_queue")
	s.do("PUT", "/api/v1/hooks/b", object{"url": "http://169.254.169.254/"}).problem(t, 422, "target_not_allowed")
	s.do("PUT", "/api/v1/hooks/b", object{"url": "https://example.com", "keep": "1s"}).problem(t, 422, "invalid")
	s.do("DELETE", "/api/v1/hooks/crm", nil).want(t, 204, nil)
	s.do("GET", "/api/v1/hooks/crm", nil).problem(t, 404, "not_found")
}
