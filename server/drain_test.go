package server_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server"
	"github.com/tuskqueue/tusk/store/memory"
)

// While a server drains, it answers, and tells load balancers and clients to go elsewhere.
func TestAServerAnswersUntilItHasDrained(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	client, err := tusk.NewClient(memory.New(), &tusk.ClientConfig{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.New(client, server.Config{Logger: quiet, Dev: true, Drain: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, listener, nil, false) }()
	ask := func(method, path, body string) (status int, closes bool) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+listener.Addr().String()+path,
			strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Errorf("%s %s: %v", method, path, err)
			return 0, false
		}
		a.Body.Close()
		return a.StatusCode, a.Close
	}
	if status, closes := ask("GET", "/readyz", ""); status != 200 || closes {
		t.Errorf("before: %d, closes: %v", status, closes)
	}
	cancel()
	for deadline := time.Now().Add(time.Second); ; time.Sleep(10 * time.Millisecond) {
		if status, _ := ask("GET", "/readyz", ""); status == 503 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("/readyz does not say that the server is shutting down")
		}
	}
	if status, closes := ask("POST", "/api/v1/tasks", `{"kind":"k"}`); status != 201 || !closes {
		t.Errorf("meanwhile: %d, closes: %v", status, closes)
	}
	select {
	case err := <-ended:
		t.Errorf("it did not drain: %v", err)
	default:
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestAStreamThatIsRefusedAtShutdownSaysSo(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	client, err := tusk.NewClient(memory.New(), &tusk.ClientConfig{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s := startUntil(ctx, t, client)
	cancel()
	for deadline := time.Now().Add(5 * time.Second); s.do("GET", "/readyz", nil).status != 503; {
		if time.Now().After(deadline) {
			t.Fatal("still ready")
		}
	}
	s.do("GET", "/api/v1/events", nil).problem(t, 503, "shutting_down")
}
