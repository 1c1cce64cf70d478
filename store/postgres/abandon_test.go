//go:build unix

package postgres_test

import (
	"context"
	"io"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres/pgtest"
)

// stall stands between a client and a server. While it is away, nothing gets through to the server, and little fits
// in between: the rest stays in the client's kernel.
type stall struct {
	away atomic.Bool
	over chan error // how each connection ended that was open while it was away
}

func stalling(t *testing.T, dsn string) (*stall, string) {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	small := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 64<<10)
		})
	}}
	listener, err := small.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	s, to := &stall{over: make(chan error, 100)}, u.Host
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go s.serve(client, to)
		}
	}()
	u.Host = listener.Addr().String()
	return s, u.String()
}

func (s *stall) serve(client net.Conn, to string) {
	defer client.Close()
	server, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer server.Close()
	go func() { _, _ = io.Copy(client, server) }()
	buffer, waited := make([]byte, 64<<10), false
	for {
		for s.away.Load() {
			waited = true
			time.Sleep(5 * time.Millisecond)
		}
		n, err := client.Read(buffer)
		for s.away.Load() {
			waited = true
			time.Sleep(5 * time.Millisecond)
		}
		if _, failed := server.Write(buffer[:n]); err == nil {
			err = failed
		}
		if err != nil {
			if waited {
				s.over <- err
			}
			return
		}
	}
}

// The network between a producer and a pooler is away while a task is being sent, and the call is given up. Data
// that the producer's kernel has not sent by then is not sent when the network is back.
func TestAnEnqueueThatWasGivenUpIsNotSentLater(t *testing.T) {
	dsn := pgtest.DSN(t)
	direct, _ := open(t, dsn, true)
	between, through := stalling(t, dsn)
	s, _ := open(t, through, false)
	ctx := context.Background()
	task := func() []store.NewTask {
		args := `"` + strings.Repeat("x", 600<<10) + `"`
		return []store.NewTask{{ID: tusk.NewID(), Kind: "k", Queue: "q", Args: []byte(args)}}
	}
	for range 5 { // so that the next call sends nothing else first
		if _, err := s.Enqueue(ctx, task()); err != nil {
			t.Fatal(err)
		}
	}
	between.away.Store(true)
	brief, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	late := task()
	if _, err := s.Enqueue(brief, late); err == nil {
		t.Fatal("it is stored")
	}
	time.Sleep(3 * time.Second) // the connection is reset after two seconds
	between.away.Store(false)
	select {
	case err := <-between.over:
		t.Log("the connection ended:", err)
	case <-time.After(25 * time.Second): // nothing reports a connection that the kernel has forgotten
	}
	time.Sleep(100 * time.Millisecond) // for the server to process what it has received
	if found, err := direct.List(ctx, store.Filter{IDs: []store.ID{late[0].ID}}); err != nil || len(found) > 0 {
		t.Errorf("it was stored later: %d, %v", len(found), err)
	}
}
