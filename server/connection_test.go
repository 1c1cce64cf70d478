package server_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/server/access"
)

// TestConnectionsAreBoundedByIdentity opens as many connections as one token may have. Another one is refused and
// ends, whatever it requests. Another token is served, and a connection that ends makes room.
func TestConnectionsAreBoundedByIdentity(t *testing.T) {
	const most = 500
	s := start(t)
	many := s.tokenFor(access.Token{Name: "many", Role: access.Viewer})
	few := s.tokenFor(access.Token{Name: "few", Role: access.Viewer})
	open := make([]net.Conn, most)
	for i := range open {
		open[i] = s.dial()
		if a := ask(t, open[i], many, "/api/v1/me"); a.StatusCode != http.StatusOK {
			t.Fatalf("connection %d: %s", i+1, a.Status)
		}
	}
	for _, path := range []string{"/api/v1/me", "/tasks", "/live"} {
		if a := ask(t, s.dial(), many, path); a.StatusCode != http.StatusServiceUnavailable || !a.Close {
			t.Errorf("one more connection, %s: %s, closed: %v", path, a.Status, a.Close)
		}
	}
	if a := ask(t, open[0], many, "/api/v1/me"); a.StatusCode != http.StatusOK {
		t.Errorf("a connection that was there: %s", a.Status)
	}
	if a := ask(t, s.dial(), few, "/api/v1/me"); a.StatusCode != http.StatusOK {
		t.Errorf("a connection of another: %s", a.Status)
	}
	if a := ask(t, open[0], few, "/api/v1/me"); a.StatusCode != http.StatusOK { // as behind a proxy
		t.Errorf("a connection that another uses again: %s", a.Status)
	}
	eventually(t, func() bool { return ask(t, s.dial(), many, "/api/v1/me").StatusCode == http.StatusOK })
	open[1].Close()
	eventually(t, func() bool { return ask(t, s.dial(), many, "/api/v1/me").StatusCode == http.StatusOK })
}

// TestConnectionsWithoutALoginAreBoundedByAddress: they keep nobody out who logs in from the same address.
func TestConnectionsWithoutALoginAreBoundedByAddress(t *testing.T) {
	s := start(t)
	viewer := s.tokenFor(access.Token{Name: "viewer", Role: access.Viewer})
	paths := []string{"/healthz", "/api/v1/me", "/login", "/tasks"} // two that are open, and two that turn away
	for i := range 500 {
		a := ask(t, s.dial(), "none", paths[i%len(paths)])
		if a.StatusCode == http.StatusServiceUnavailable {
			t.Fatalf("connection %d: %s", i+1, a.Status)
		}
	}
	for _, path := range paths {
		if a := ask(t, s.dial(), "none", path); a.StatusCode != http.StatusServiceUnavailable || !a.Close {
			t.Errorf("one more connection, %s: %s, closed: %v", path, a.Status, a.Close)
		}
	}
	if a := ask(t, s.dial(), viewer, "/api/v1/me"); a.StatusCode != http.StatusOK {
		t.Errorf("with a token: %s", a.Status)
	}
}

func (s *site) dial() net.Conn {
	s.t.Helper()
	c, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	return c
}

// ask sends a request on a connection and reads the response.
func ask(t *testing.T, c net.Conn, token, path string) *http.Response {
	t.Helper()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	_, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", path, token)
	if err != nil {
		t.Fatal(err)
	}
	a, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	a.Body.Close()
	return a
}
