package placetest

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// front is the proxy through which clients reach the server. Its address stays the same, and it can
// keep clients out.
type front struct {
	listener net.Listener
	server   string
	held     atomic.Bool

	mu    sync.Mutex
	moods map[mood]bool
	conns map[net.Conn]bool
}

// mood is what a front does instead of forwarding.
type mood int

const (
	gone    mood = iota // it accepts no connections
	refuses             // it answers requests itself
)

func newFront(server string) (*front, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	f := &front{listener: l, server: server, moods: map[mood]bool{}, conns: map[net.Conn]bool{}}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go f.serve(client)
		}
	}()
	return f, nil
}

func (f *front) address() string { return f.listener.Addr().String() }

// turn switches a mood on or off, and cuts all connections.
func (f *front) turn(m mood, on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.moods[m] = on
	for c := range f.conns {
		_ = c.Close()
	}
}

// admit registers a connection. It reports false if none are accepted.
func (f *front) admit(c net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.moods[gone] {
		return false
	}
	f.conns[c] = true
	return true
}

func (f *front) leave(c net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.conns, c)
}

func (f *front) refusing() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.moods[refuses]
}

func (f *front) serve(client net.Conn) {
	defer client.Close()
	if !f.admit(client) {
		return
	}
	defer f.leave(client)
	if f.refusing() {
		refuse(client)
		return
	}
	server, err := net.Dial("tcp", f.server)
	if err != nil {
		return
	}
	defer server.Close()
	if !f.admit(server) {
		return
	}
	defer f.leave(server)
	var both sync.WaitGroup
	both.Go(func() { f.pump(client, server) })
	both.Go(func() { f.pump(server, client) })
	both.Wait()
}

// refuse reads a request and answers it like an overloaded server.
func refuse(client net.Conn) {
	_ = client.SetDeadline(time.Now().Add(10 * time.Second))
	r, err := http.ReadRequest(bufio.NewReader(client))
	if err != nil {
		return
	}
	// Azure's client reads the body for its next try while this try is still sending it.
	if r.Header.Get("Expect") == "" {
		_, _ = io.Copy(io.Discard, r.Body)
	}
	answer := http.Response{StatusCode: http.StatusServiceUnavailable, ProtoMajor: 1, ProtoMinor: 1, Close: true,
		Header: http.Header{"Connection": {"close"}}}
	_ = answer.Write(client)
	_, _ = io.Copy(io.Discard, r.Body) // a client that is still writing would not read the answer
}

// pump forwards what one end sends to the other, until either is closed.
func (f *front) pump(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	for buffer := make([]byte, 64<<10); ; {
		n, err := from.Read(buffer)
		for n > 0 && f.held.Load() {
			time.Sleep(10 * time.Millisecond)
		}
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
