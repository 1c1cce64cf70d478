package postgres_test

import (
	"crypto/tls"
	"net"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store/postgres"
)

// A connection that was idle is not pinged before a call, and one that the server has closed is not used.
func TestIdleConnectionsAreNotPinged(t *testing.T) {
	t.Parallel()
	p, through := throughProxy(t, migrated.DSN(t))
	s, err := postgres.Open(t.Context(), through)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	enqueue := func() {
		t.Helper()
		time.Sleep(1100 * time.Millisecond) // after a second the driver would ping by default
		if _, err := s.Enqueue(t.Context(), newTasks(1, "q")); err != nil {
			t.Error(err)
		}
	}
	for range 3 {
		enqueue()
	}
	if n := p.pings.Load(); n > 0 {
		t.Errorf("%d pings before three calls", n)
	}
	p.Cut()
	enqueue()
}

func TestASocketThatHasSomethingToSayIsDoubtful(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, end := range map[string]func(net.Conn) error{
		"words": func(server net.Conn) error { _, err := server.Write([]byte("terminating connection")); return err },
		"end":   net.Conn.Close,
	} {
		client, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		server, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		go client.Read(make([]byte, 1)) // as the driver does if a write was slow
		time.Sleep(10 * time.Millisecond)
		for at, c := range []net.Conn{client, tls.Client(client, &tls.Config{})} {
			if !postgres.Silent(c) {
				t.Errorf("before the server's %s: connection %d is not silent", name, at)
			}
		}
		if err := end(server); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the server's "+name, func() bool { return !postgres.Silent(client) })
	}
}
