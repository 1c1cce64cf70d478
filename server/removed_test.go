package server_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/server/herald"
	"github.com/tuskqueue/tusk/store"
)

// holding is a receiver that reports when it is called, and answers after it was released.
func holding(t *testing.T, status int) (url string, begun <-chan struct{}, goOn func()) {
	called, release := make(chan struct{}, 1), make(chan struct{})
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		select {
		case called <- struct{}{}:
		default:
		}
		<-release
		w.WriteHeader(status)
	}))
	t.Cleanup(h.Close)
	return h.URL, called, func() { close(release) }
}

// An alert or hook that is removed while it sends leaves nothing that would be reported forever.
func TestWhatIsRemovedWhileItTellsLeavesNothing(t *testing.T) {
	for name, status := range map[string]int{"that arrives": 200, "that does not arrive": 503} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, allowLoopback)
			url, begun, goOn := holding(t, status)
			s.do("PUT", "/api/v1/hooks/crm", object{"url": url, "events": []string{"task.cancelled"}}).want(t, 200, nil)
			s.do("POST", "/api/v1/tasks/"+s.enqueue(object{"kind": "k", "delay": "1h"})+"/cancel", nil).want(t, 200, nil)
			alertURL, watched, alertGoesOn := holding(t, status)
			s.enqueue(object{"kind": "k", "queue": "q"})
			alert := object{"kind": "no_worker", "queue": "q", "webhooks": []string{alertURL}}
			s.do("PUT", "/api/v1/alerts/a", alert).want(t, 200, nil)
			for _, called := range []<-chan struct{}{begun, watched} {
				select {
				case <-called:
				case <-time.After(30 * time.Second):
					t.Fatal("not called")
				}
			}
			s.do("DELETE", "/api/v1/hooks/crm", nil).want(t, 204, nil)
			s.do("DELETE", "/api/v1/alerts/a", nil).want(t, 204, nil)
			goOn()
			alertGoesOn()
			time.Sleep(1500 * time.Millisecond) // time in which they would be written
			for _, kind := range []string{herald.HookState, herald.AlertState} {
				if left, err := s.client.Store().Records(t.Context(), store.RecordFilter{Kind: kind}); err != nil || len(left) > 0 {
					t.Errorf("%s: %d are left, %v", kind, len(left), err)
				}
			}
		})
	}
}

// A state that a removed alert or hook left behind, because two processes wrote at once, is ignored.
func TestWhatARemovedOneLeftBehindIsNobodys(t *testing.T) {
	s := start(t, allowLoopback)
	h := listenTo(t)
	for kind, name := range map[string]string{herald.HookState: "crm", herald.AlertState: "a"} {
		if _, _, err := s.client.Store().PutRecord(t.Context(), store.PutRecord{Record: store.Record{Kind: kind, Name: name,
			Body: []byte(`{"cursor": "1", "dropped": 7, "waits": "2026-01-01T00:00:00Z"}`)}}); err != nil {
			t.Fatal(err)
		}
	}
	if all, err := herald.Receivers(t.Context(), s.client.Store()); err != nil || len(all) > 0 {
		t.Errorf("told of: %+v, %v", all, err)
	}
	s.do("PUT", "/api/v1/hooks/crm", object{"url": h.URL}).want(t, 200, nil)
	var hook struct{ Dropped int }
	if s.do("GET", "/api/v1/hooks/crm", nil).want(t, 200, &hook); hook.Dropped != 0 {
		t.Errorf("a new hook dropped %d", hook.Dropped)
	}
}
