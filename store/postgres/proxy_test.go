package postgres_test

import (
	"bytes"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store/storetest/wires"
)

// proxy stands between an engine and its server, and does to their connections what networks do.
type proxy struct {
	*wires.Wires
	losing atomic.Pointer[string] // the text of an answer that will be lost, once
	// deaf drops requests to cancel a statement, as the driver makes them for lost connections
	deaf     atomic.Bool
	cutOneIn atomic.Int64 // one in so many requests is cut off within it or just after it
	cuts     atomic.Int64
	pings    atomic.Int64 // by which the driver checks whether a connection is alive
	// a request that is cut off arrives whole, up to so many nanoseconds after its client has seen the end
	lag atomic.Int64

	mu    sync.Mutex
	lines []*line
}

// line is one connection through a proxy.
type line struct {
	*wires.Wire
	listens, stall atomic.Bool
}

// throughProxy starts a proxy to the server of a DSN, and returns a DSN through it.
func throughProxy(t testing.TB, dsn string) (p *proxy, through string) {
	t.Helper()
	p = &proxy{}
	p.Wires, through = wires.Start(t, dsn, p.open)
	return p, through
}

func (p *proxy) open(w *wires.Wire) wires.Pass {
	l := &line{Wire: w}
	p.mu.Lock()
	p.lines = append(p.lines, l)
	p.mu.Unlock()
	return func(piece []byte, up bool) ([]byte, bool) {
		switch {
		case l.stall.Load():
			return nil, true
		case up:
			return p.ask(l, piece)
		}
		return p.answer(piece)
	}
}

var cancelRequest = []byte{0, 0, 0, 16, 4, 210, 22, 46}

func (p *proxy) ask(l *line, piece []byte) ([]byte, bool) {
	if bytes.Contains(piece, []byte("-- ping")) {
		p.pings.Add(1)
	}
	if bytes.Contains(piece, []byte("listen ")) {
		l.listens.Store(true)
	}
	if p.deaf.Load() && bytes.Equal(piece[:min(8, len(piece))], cancelRequest) {
		return nil, false
	}
	if n := p.cutOneIn.Load(); n > 0 && rand.Int64N(n) == 0 {
		p.cuts.Add(1)
		if lag := p.lag.Load(); lag > 0 {
			l.Client.Close()
			time.Sleep(time.Duration(rand.Int64N(lag)))
			l.Linger(50 * time.Millisecond) // so that the server has time to do what it was asked
			return piece, true
		}
		return piece[:rand.IntN(len(piece)+1)], false
	}
	return piece, true
}

func (p *proxy) answer(piece []byte) ([]byte, bool) {
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
func (p *proxy) stall(which func(*line) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.lines {
		if which(l) {
			l.stall.Store(true)
		}
	}
}
