package postgres_test

import (
	"bytes"
	"math/rand/v2"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// proxy stands between an engine and its server, and does to their connections what networks do.
type proxy struct {
	listener net.Listener
	server   string
	losing   atomic.Pointer[string] // the text of an answer that will be lost, once
	// deaf drops requests to cancel a statement, as the driver makes them for lost connections
	deaf     atomic.Bool
	cutOneIn atomic.Int64 // one in so many requests is cut off within it or just after it
	cuts     atomic.Int64
	pings    atomic.Int64 // by which the driver checks whether a connection is alive
	// a request that is cut off arrives whole, up to so many nanoseconds after its client has seen the end
	lag atomic.Int64

	mu    sync.Mutex
	wires map[*wire]bool
}

// wire is one connection through a proxy.
type wire struct {
	client, server net.Conn
	listens, stall atomic.Bool
	ends           atomic.Bool // the server's end is closed later
}

// throughProxy starts a proxy to the server of a DSN, and returns a DSN through it.
func throughProxy(t testing.TB, dsn string) (*proxy, string) {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, server: u.Host, wires: map[*wire]bool{}}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { p.serve(client) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.cut()
		serving.Wait()
	})
	u.Host = l.Addr().String()
	return p, u.String()
}

func (p *proxy) serve(client net.Conn) {
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		client.Close()
		return
	}
	w := &wire{client: client, server: server}
	p.mu.Lock()
	p.wires[w] = true
	p.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { w.pump(client, server, p.ask) })
	both.Go(func() { w.pump(server, client, p.answer) })
	both.Wait()
	p.mu.Lock()
	delete(p.wires, w)
	p.mu.Unlock()
}

// pump passes on what pass lets through, until pass says that the connection is cut.
func (w *wire) pump(from, to net.Conn, pass func(w *wire, piece []byte) ([]byte, bool)) {
	defer func() {
		if w.ends.Load() { // so that the server has time to do what it was asked
			time.Sleep(50 * time.Millisecond)
		}
		w.cut()
	}()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if w.stall.Load() {
			continue
		}
		piece, lives := pass(w, buffer[:n])
		if _, err := to.Write(piece); err != nil || !lives {
			return
		}
	}
}

var cancelRequest = []byte{0, 0, 0, 16, 4, 210, 22, 46}

func (p *proxy) ask(w *wire, piece []byte) ([]byte, bool) {
	if bytes.Contains(piece, []byte("-- ping")) {
		p.pings.Add(1)
	}
	if bytes.Contains(piece, []byte("listen ")) {
		w.listens.Store(true)
	}
	if p.deaf.Load() && bytes.Equal(piece[:min(8, len(piece))], cancelRequest) {
		return nil, false
	}
	if n := p.cutOneIn.Load(); n > 0 && rand.Int64N(n) == 0 {
		p.cuts.Add(1)
		if lag := p.lag.Load(); lag > 0 {
			w.client.Close()
			time.Sleep(time.Duration(rand.Int64N(lag)))
			w.ends.Store(true)
			return piece, true
		}
		return piece[:rand.IntN(len(piece)+1)], false
	}
	return piece, true
}

func (p *proxy) answer(_ *wire, piece []byte) ([]byte, bool) {
	text := p.losing.Load()
	if text != nil && bytes.Contains(piece, []byte(*text)) && p.losing.CompareAndSwap(text, nil) {
		return nil, false
	}
	return piece, true
}

// lose swallows the next answer with a text in it, and cuts the connection.
func (p *proxy) lose(text string) { p.losing.Store(&text) }

// lost reports whether lose has swallowed an answer.
func (p *proxy) lost() bool { return p.losing.Load() == nil }

// stall lets connections accept everything and deliver nothing.
func (p *proxy) stall(which func(w *wire) bool) {
	for _, w := range p.all() {
		if which(w) {
			w.stall.Store(true)
		}
	}
}

// cut cuts all connections.
func (p *proxy) cut() {
	for _, w := range p.all() {
		w.cut()
	}
}

func (p *proxy) all() (all []*wire) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.wires {
		all = append(all, w)
	}
	return all
}

func (w *wire) cut() {
	w.client.Close()
	w.server.Close()
}
