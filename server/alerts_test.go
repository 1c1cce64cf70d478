package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
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
	"github.com/tuskqueue/tusk/server/access"
	"github.com/tuskqueue/tusk/server/alert"
	"github.com/tuskqueue/tusk/server/notify"
	"github.com/tuskqueue/tusk/server/notify/notifytest"
	"github.com/tuskqueue/tusk/server/push"
	"github.com/tuskqueue/tusk/store"
)

// heard is a receiver of alerts. It records the messages in order.
type heard struct {
	*httptest.Server
	mu     sync.Mutex
	bodies [][]byte
	heads  []http.Header
	refuse atomic.Bool
}

func hear(t *testing.T) *heard {
	h := &heard{}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if h.refuse.Load() {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.bodies, h.heads = append(h.bodies, body), append(h.heads, r.Header)
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *heard) messages(t *testing.T) (all []notify.Message) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, body := range h.bodies {
		var m notify.Message
		if err := json.Unmarshal(body, &m); err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

func (h *heard) types(t *testing.T) string {
	var types []string
	for _, m := range h.messages(t) {
		types = append(types, strings.TrimPrefix(m.Type, "alert."))
	}
	return strings.Join(types, " ")
}

func quickAlerts(c *server.Config) {
	c.PushAllow, c.AlertEvery, c.AlertPatience = []string{"127.0.0.1"}, 50*time.Millisecond, 500*time.Millisecond
}

func enqueueTo(t *testing.T, client *tusk.Client, queue string) {
	t.Helper()
	if _, err := client.Enqueue(t.Context(), tusk.RawArgs{Name: "k"}, &tusk.Options{Queue: queue}); err != nil {
		t.Fatal(err)
	}
}

func cancelAll(t *testing.T, client *tusk.Client, queue string) {
	t.Helper()
	tasks, err := client.List(t.Context(), tusk.Filter{Queues: []string{queue}, States: []tusk.State{tusk.StateAvailable}})
	for _, task := range tasks {
		_, failed := client.Cancel(t.Context(), task.ID, "test")
		err = errors.Join(err, failed)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestAnAlertTellsItsReceiversOnceAndWhenItIsOver(t *testing.T) {
	for name, open := range engines {
		t.Run(name, func(t *testing.T) {
			client := newClient(t, open(t))
			var log safeBuffer
			s := startOn(t, client, quickAlerts, func(c *server.Config) { c.Logger, c.Environment = log.logger(), "production" })
			hook, slack := hear(t), hear(t)
			var made server.NewAlert
			misspelt := object{"kind": "no_worker", "queue": "mial", "mail": []string{"ops@example.com"}}
			s.do("PUT", "/api/v1/alerts/idle-mail", misspelt).problem(t, 404, "unknown_queue")
			s.do("PUT", "/api/v1/alerts/idle-mail?create=true",
				object{"kind": "no_worker", "queue": "mail", "webhooks": []string{hook.URL + "/x"},
					"slack": []string{slack.URL + "/services/s3cret"}}).want(t, 200, &made)
			if !strings.HasPrefix(made.Secret, "whsec_") || made.Alert.State != "ok" || len(made.Alert.Slack) != 1 {
				t.Fatalf("%+v", made)
			}
			enqueueTo(t, client, "mail")
			eventually(t, func() bool { return hook.types(t) == "firing" })
			m := hook.messages(t)[0]
			if err := push.Verify(made.Secret, hook.heads[0], hook.bodies[0], time.Now()); err != nil ||
				hook.heads[0].Get("webhook-id") != m.ID {
				t.Error(err, hook.heads[0])
			}
			if m.Data.Alert != "idle-mail" || m.Data.Text != "queue mail has 1 available task and no worker" ||
				m.Data.Environment != "production" || m.Data.Since.IsZero() {
				t.Errorf("%+v", m)
			}
			var a server.Alert
			s.do("GET", "/api/v1/alerts/idle-mail", nil).want(t, 200, &a)
			if a.State != "firing" || a.Told.IsZero() || a.Text == "" {
				t.Errorf("%+v", a)
			}
			if page := s.do("GET", "/alerts", nil).want(t, 200, nil).body; !strings.Contains(page, "firing") ||
				!strings.Contains(page, "idle-mail") {
				t.Error(page)
			}
			cancelAll(t, client, "mail")
			eventually(t, func() bool { return hook.types(t) == "firing over" })
			eventually(t, func() bool { slack.mu.Lock(); defer slack.mu.Unlock(); return len(slack.bodies) == 2 })
			var text struct{ Text string }
			if err := json.Unmarshal(slack.bodies[0], &text); err != nil ||
				!strings.HasPrefix(text.Text, "[production] Tusk: idle-mail is firing\nqueue mail") {
				t.Error(text, err)
			}
			s.do("POST", "/api/v1/alerts/idle-mail/test", nil).want(t, 200, nil)
			eventually(t, func() bool { return hook.types(t) == "firing over test" })
			for _, path := range []string{"/api/v1/alerts", "/api/v1/alerts/idle-mail", "/alerts", "/alerts?edit=idle-mail",
				"/audit", "/api/v1/audit"} {
				if body := s.do("GET", path, nil).want(t, 200, nil).body; strings.Contains(body, "whsec_") ||
					strings.Contains(body, "s3cret") {
					t.Errorf("%s shows a secret", path)
				}
			}
			if strings.Contains(log.String(), "whsec_") || strings.Contains(log.String(), "s3cret") {
				t.Error("a secret is logged")
			}
			s.do("DELETE", "/api/v1/alerts/idle-mail", nil).want(t, 204, nil)
			s.do("DELETE", "/api/v1/alerts/idle-mail", nil).problem(t, 404, "not_found")
		})
	}
}

// TestAProcessThatDiesBeforeItTellsIsFollowedByOneThatDoes: a message is stored together with the state, under its
// own id. The first server reaches nobody and dies silently. The second one may take over only after a while, and
// sends the message.
func TestAProcessThatDiesBeforeItTellsIsFollowedByOneThatDoes(t *testing.T) {
	for name, open := range engines {
		t.Run(name, func(t *testing.T) {
			client, hook := newClient(t, open(t)), hear(t)
			hook.refuse.Store(true)
			sender := notifytest.Sender(t)
			book := alert.NewBook(client.Store(), nil, sender)
			if _, _, err := book.Put(t.Context(), alert.Rule{Name: "a", Kind: alert.NoWorker,
				To: notify.Receivers(nil, []string{hook.URL}, nil)}, "test"); err != nil {
				t.Fatal(err)
			}
			enqueueTo(t, client, "mail")
			first, kill := context.WithCancel(t.Context())
			dead := make(chan struct{})
			dying := newClient(t, &mortal{Store: client.Store(), alive: first})
			go func() {
				defer close(dead)
				alert.New(alert.NewBook(dying.Store(), nil, sender), dying, discard(), 20*time.Millisecond,
					500*time.Millisecond).Run(first)
			}()
			var owed string
			eventually(t, func() bool {
				a, err := book.Get(t.Context(), "a")
				if err != nil {
					t.Fatal(err)
				}
				if len(a.Owed) == 1 && a.Owed[0].Tries > 0 {
					owed = a.Owed[0].Message.ID
				}
				return owed != ""
			})
			kill() // from here on the store refuses its calls, so that it cannot give up the post
			<-dead
			hook.refuse.Store(false)
			second, stop := context.WithCancel(t.Context())
			defer stop()
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				alert.New(book, client, discard(), 20*time.Millisecond, 500*time.Millisecond).Run(second)
			}()
			eventually(t, func() bool { return hook.types(t) == "firing" })
			if m := hook.messages(t)[0]; m.ID != owed {
				t.Errorf("it was told under the id %s, and owed under %s", m.ID, owed)
			}
			cancelAll(t, client, "mail")
			eventually(t, func() bool { return hook.types(t) == "firing over" })
			stop()
			<-ended
		})
	}
}

// mortal is a store whose process is dead once alive has ended.
type mortal struct {
	store.Store
	alive context.Context
}

func (m *mortal) Unwrap() store.Store { return m.Store }

func (m *mortal) PutRecord(ctx context.Context, p store.PutRecord) (int64, []store.Enqueued, error) {
	if m.alive.Err() != nil {
		return 0, nil, m.alive.Err()
	}
	return m.Store.PutRecord(ctx, p)
}

func TestOfManyServersOneTells(t *testing.T) {
	client, hook := newClient(t, newMemory()), hear(t)
	s := startOn(t, client, quickAlerts)
	startOn(t, client, quickAlerts)
	startOn(t, client, quickAlerts)
	s.do("PUT", "/api/v1/alerts/a", object{"kind": "no_worker", "webhooks": []string{hook.URL}}).want(t, 200, nil)
	for range 3 {
		enqueueTo(t, client, "q")
		before := hook.types(t)
		eventually(t, func() bool { return hook.types(t) == strings.TrimSpace(before+" firing") })
		cancelAll(t, client, "q")
		eventually(t, func() bool { return hook.types(t) == strings.TrimSpace(before+" firing over") })
	}
}

func TestADeadReceiverIsTriedAgainAndHoldsUpNoOther(t *testing.T) {
	client, dead, alive := newClient(t, newMemory()), hear(t), hear(t)
	dead.refuse.Store(true)
	s := startOn(t, client, quickAlerts)
	s.do("PUT", "/api/v1/alerts/a", object{"kind": "no_worker", "webhooks": []string{dead.URL, alive.URL}}).want(
		t, 200, nil)
	enqueueTo(t, client, "q")
	eventually(t, func() bool { return alive.types(t) == "firing" })
	var a server.Alert
	eventually(t, func() bool {
		s.do("GET", "/api/v1/alerts/a", nil).want(t, 200, &a)
		return a.Waiting == 1 && a.Error != ""
	})
	if !strings.Contains(a.Error, "500 Internal Server Error") {
		t.Error(a.Error)
	}
	dead.refuse.Store(false)
	eventually(t, func() bool { return dead.types(t) == "firing" })
}

func TestAMutedAlertTellsWhatStillHoldsWhenTheMuteIsOver(t *testing.T) {
	client, hook := newClient(t, newMemory()), hear(t)
	s := startOn(t, client, quickAlerts)
	s.do("PUT", "/api/v1/alerts/a", object{"kind": "no_worker", "webhooks": []string{hook.URL}}).want(t, 200, nil)
	var a server.Alert
	s.do("POST", "/api/v1/alerts/a/mute", object{"for": "1h"}).want(t, 200, &a)
	if time.Until(a.MutedUntil) < 50*time.Minute {
		t.Error(a.MutedUntil)
	}
	enqueueTo(t, client, "q")
	eventually(t, func() bool { s.do("GET", "/api/v1/alerts/a", nil).want(t, 200, &a); return a.State == "firing" })
	if got := hook.types(t); got != "" {
		t.Error(got)
	}
	s.do("POST", "/api/v1/alerts/a/mute", object{"for": "0s"}).want(t, 200, nil)
	eventually(t, func() bool { return hook.types(t) == "firing" })
}

func TestAlertsAreRefusedThatCannotBe(t *testing.T) {
	s := start(t)
	for _, target := range []string{"http://example.com/", "https://127.0.0.1/", "https://169.254.169.254/",
		"https://localhost/x", "https://example.com:22/"} {
		s.do("PUT", "/api/v1/alerts/a", object{"kind": "oldest", "webhooks": []string{target}}).problem(t, 422,
			"target_not_allowed")
		s.do("PUT", "/api/v1/alerts/a", object{"kind": "oldest", "slack": []string{target}}).problem(t, 422,
			"target_not_allowed")
	}
	s.do("PUT", "/api/v1/alerts/a", object{"kind": "oldest"}).problem(t, 422, "invalid")
	s.do("PUT", "/api/v1/alerts/a", object{"kind": "oldest", "rate": 3, "mail": []string{"ops@example.com"}}).problem(t,
		422, "invalid")
	s.do("PUT", "/api/v1/alerts/a", object{"kind": "oldest", "mail": []string{"ops@example.com\r\nBcc: x@example.com"}}).
		problem(t, 400, "invalid")
	s.do("PUT", "/api/v1/alerts/a", object{"kind": "oldest", "mail": []string{"nobody"}}).problem(t, 400, "invalid")
	s.do("PUT", "/api/v1/alerts/a", object{"kind": "oldest", "mail": []string{"ops@example.com"}}).want(t, 200, nil)
	operator := s.tokenFor(access.Token{Name: "o", Role: access.Operator})
	if a := s.as(operator, "PUT", "/api/v1/alerts/a",
		object{"kind": "oldest", "mail": []string{"me@example.com"}}); a.status != 403 {
		t.Error(a.status)
	}
	page := s.do("POST", "/alerts", url.Values{"name": {"b"}, "kind": {"discarded"}, "rate": {"many"},
		"mail": {"ops@example.com"}}.Encode(), "Content-Type", "application/x-www-form-urlencoded").want(t, 400, nil).body
	if !strings.Contains(page, "is a whole number") {
		t.Error(page)
	}
	s.do("POST", "/alerts", url.Values{"name": {"b"}, "kind": {"discarded"}, "rate": {"7"},
		"mail": {"ops@example.com"}}.Encode(), "Content-Type", "application/x-www-form-urlencoded").want(t, 303, nil)
	once := form("name", "c", "kind", "oldest", "queue", "mial", "mail", "ops@example.com")
	page = s.do("POST", "/alerts", once, "Content-Type", "application/x-www-form-urlencoded").want(t, 404, nil).body
	if !strings.Contains(page, "The queue mial is unknown") ||
		!strings.Contains(page, `name="new" value="mial"`) {
		t.Error(page)
	}
	s.do("POST", "/alerts", once+"&new=mial", "Content-Type", "application/x-www-form-urlencoded").want(t, 303, nil)
	var a server.Alert
	if s.do("GET", "/api/v1/alerts/b", nil).want(t, 200, &a); a.Rate != 7 || a.Mail[0] != "ops@example.com" {
		t.Errorf("%+v", a)
	}
}

func TestAKeyRingKeepsTheSecretsOfAlerts(t *testing.T) {
	s, hook := newMemory(), hear(t)
	ring := &tusk.KeyRing{Primary: "k", Keys: map[string][]byte{"k": bytes.Repeat([]byte{7}, 32)}}
	client, err := tusk.NewClient(s, &tusk.ClientConfig{Logger: discard(), KeyRing: ring})
	if err != nil {
		t.Fatal(err)
	}
	site := startOn(t, client, quickAlerts)
	var made server.NewAlert
	site.do("PUT", "/api/v1/alerts/a", object{"kind": "no_worker", "webhooks": []string{hook.URL},
		"slack": []string{hook.URL + "/services/s3cret"}}).want(t, 200, &made)
	enqueueTo(t, client, "q")
	eventually(t, func() bool { hook.mu.Lock(); defer hook.mu.Unlock(); return len(hook.bodies) == 2 })
	for _, kind := range []string{"alert", "alert_state"} {
		records, err := s.Records(t.Context(), store.RecordFilter{Kind: kind})
		if err != nil || len(records) != 1 || bytes.Contains(records[0].Body, []byte("s3cret")) ||
			bytes.Contains(records[0].Body, []byte(made.Secret)) {
			t.Errorf("%s, %v", records[0].Body, err)
		}
	}
	signed := 0
	for i, body := range hook.bodies {
		if push.Verify(made.Secret, hook.heads[i], body, time.Now()) == nil {
			signed++
		}
	}
	if signed != 1 {
		t.Error(signed)
	}
}
