package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

// devSite runs a server that lets everybody in as one identity.
func devSite(t *testing.T, st store.Store) (s *Server, client *tusk.Client, url string) {
	t.Helper()
	client, err := tusk.NewClient(st, &tusk.ClientConfig{Logger: slog.New(slog.DiscardHandler)})
	if err == nil {
		s, err = New(client, Config{Logger: slog.New(slog.DiscardHandler), Dev: true})
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	h := httptest.NewServer(s.Handler())
	t.Cleanup(func() { cancel(); <-ended; h.Close() })
	return s, client, h.URL
}

type told struct {
	status int
	text   string
}

func post(t *testing.T, url, body, idempotencyKey string) told {
	r, err := http.NewRequestWithContext(t.Context(), "POST", url, strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return told{}
	}
	r.Header.Set("Content-Type", "application/json")
	if idempotencyKey != "" {
		r.Header.Set("Idempotency-Key", idempotencyKey)
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Error(err)
		return told{}
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err != nil {
		t.Error(err)
	}
	return told{a.StatusCode, string(text)}
}

// leaseLater requests tasks, and returns once the request waits for one.
func leaseLater(t *testing.T, s *Server, url, body string) <-chan told {
	got := make(chan told, 1)
	go func() { got <- post(t, url+"/api/v1/lease", body, "") }()
	for {
		s.rooms.waiting.mu.Lock()
		waits := s.rooms.waiting.taken
		s.rooms.waiting.mu.Unlock()
		s.rooms.working.mu.Lock()
		looked := s.rooms.working.served
		works := s.rooms.working.taken
		s.rooms.working.mu.Unlock()
		if waits > 0 && looked > 1 && works == 0 {
			return got
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestWhatIsLeasedIsToldThoughTheLineIsFull(t *testing.T) {
	s, client, url := devSite(t, memory.New())
	got := leaseLater(t, s, url, `{"queues":["default"],"wait":"15s","lease":"1m"}`)
	for {
		if _, full := s.rooms.working.queue("dev", 1); full != "" {
			break
		}
	}
	e, err := client.Enqueue(t.Context(), tusk.RawArgs{Name: "k"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if a := <-got; a.status != 200 || !strings.Contains(a.text, e.ID.String()) {
		t.Errorf("%d %s", a.status, a.text)
	}
}

func TestALeaseThatRunsWaitsForNoMemory(t *testing.T) {
	s, client, url := devSite(t, memory.New())
	got := leaseLater(t, s, url, `{"queues":["default"],"max":10,"wait":"15s","lease":"30s"}`)
	if _, full := s.rooms.memory.queue("dev", s.rooms.memory.each); full != "" { // other requests have all of it
		t.Fatal("no room")
	}
	e, err := client.Enqueue(t.Context(), tusk.RawArgs{Name: "k"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case a := <-got:
		if !strings.Contains(a.text, e.ID.String()) {
			t.Errorf("%d %s", a.status, a.text)
		}
	case <-time.After(20 * time.Second):
		t.Error("the answer waits for memory, and the task's lease runs")
	}
}

func TestALeaseWaitsForMemoryNoLongerThanForTasks(t *testing.T) {
	s, _, url := devSite(t, memory.New())
	if _, full := s.rooms.memory.queue("dev", s.rooms.memory.each); full != "" {
		t.Fatal("no room")
	}
	begun := time.Now()
	a := post(t, url+"/api/v1/lease", `{"queues":["default"],"max":10,"wait":"1s"}`, "")
	if a.status != 503 || !strings.Contains(a.text, `"busy"`) || time.Since(begun) > 10*time.Second {
		t.Errorf("%d %s after %v", a.status, a.text, time.Since(begun))
	}
}

// broken is a connection that fails while a response is written.
type broken struct{ http.ResponseWriter }

func (b broken) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestWhatIsLeasedAndCannotBeToldIsReleased(t *testing.T) {
	s, client, _ := devSite(t, memory.New())
	e, err := client.Enqueue(t.Context(), tusk.RawArgs{Name: "k"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 100 { // until the puller knows the queues
		r := httptest.NewRequestWithContext(t.Context(), "POST", "http://localhost/api/v1/lease",
			strings.NewReader(`{"queues":["default"],"lease":"1h","wait":"100ms"}`))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(broken{w}, r)
		info, err := client.Get(t.Context(), e.ID)
		if err != nil {
			t.Fatal(err)
		}
		if info.State == tusk.StateRunning {
			t.Fatalf("the task is leased to nobody: %+v", info.Detail)
		}
		if len(info.Detail.Attempts) > 0 {
			if info.State != tusk.StateAvailable || info.Attempt > 1 {
				t.Errorf("%v, attempt %d", info.State, info.Attempt)
			}
			return
		}
	}
	t.Error("never leased")
}
