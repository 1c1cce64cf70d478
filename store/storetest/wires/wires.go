// Package wires carries the connections of a test to a server over TCP, so that the test can break them as networks do.
package wires

import (
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A Pass decides about each piece of data on a wire, which comes from the client if up is true, and otherwise from the
// server. It returns what is passed on, and whether the connection stays open.
type Pass func(piece []byte, up bool) (on []byte, open bool)

// All is a Pass that passes on everything.
func All(*Wire) Pass { return func(piece []byte, _ bool) ([]byte, bool) { return piece, true } }

// Wires are the connections to one server.
type Wires struct {
	server string
	pass   func(*Wire) Pass

	mu   sync.Mutex
	open map[*Wire]bool
}

// Wire is one connection.
type Wire struct {
	Client, Server net.Conn
	dead           atomic.Bool
	linger         atomic.Int64 // nanoseconds
}

// Start listens in front of the server of a URL, until the test ends. It returns the URL that leads through the
// wires. It calls pass for each new wire.
func Start(t testing.TB, dsn string, pass func(*Wire) Pass) (*Wires, string) {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ws := &Wires{server: u.Host, pass: pass, open: map[*Wire]bool{}}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { ws.serve(client) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		ws.Cut()
		serving.Wait()
	})
	u.Host = l.Addr().String()
	return ws, u.String()
}

func (ws *Wires) serve(client net.Conn) {
	server, err := net.Dial("tcp", ws.server)
	if err != nil {
		client.Close()
		return
	}
	w := &Wire{Client: client, Server: server}
	pass := ws.pass(w)
	ws.mu.Lock()
	ws.open[w] = true
	ws.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { w.pump(client, server, func(piece []byte) ([]byte, bool) { return pass(piece, true) }) })
	both.Go(func() { w.pump(server, client, func(piece []byte) ([]byte, bool) { return pass(piece, false) }) })
	both.Wait()
	ws.mu.Lock()
	delete(ws.open, w)
	ws.mu.Unlock()
}

// pump carries data in one direction until either end is closed or pass ends the connection.
func (w *Wire) pump(from, to net.Conn, pass func(piece []byte) ([]byte, bool)) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		switch {
		case w.dead.Load() && err != nil:
			return
		case w.dead.Load():
			continue
		case err == nil:
			on, open := pass(buffer[:n])
			if _, err = to.Write(on); err == nil && open {
				continue
			}
		}
		time.Sleep(time.Duration(w.linger.Load()))
		w.Cut()
		return
	}
}

// Open returns the wires that are open now.
func (ws *Wires) Open() (open []*Wire) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for w := range ws.open {
		open = append(open, w)
	}
	return open
}

// Cut closes both ends of all wires.
func (ws *Wires) Cut() {
	for _, w := range ws.Open() {
		w.Cut()
	}
}

// Cut closes both ends.
func (w *Wire) Cut() {
	w.Client.Close()
	w.Server.Close()
}

// Die makes a wire fail silently: nothing that is sent arrives, not even the close of an end.
func (w *Wire) Die() { w.dead.Store(true) }

// Linger keeps one end open for some time after the other one was closed.
func (w *Wire) Linger(d time.Duration) { w.linger.Store(int64(d)) }
