//go:build unix

package storm

import (
	"bytes"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// proxy stands between the processes of a storm and their database server, and
// does to their connections what networks do.
type proxy struct {
	targets []string // host:port, of each port that the server has

	latency  atomic.Int64 // added to each piece in each direction, in nanoseconds
	sliced   atomic.Bool  // pieces of one byte
	refuse   atomic.Bool  // new connections are closed at once
	deaf     atomic.Bool  // connections that listen for notifications hear nothing
	loseNext atomic.Int64 // answers to lose: the server gets the request, the client a reset
	lateNext atomic.Int64 // requests that arrive seconds late, when their client has gone
	lateAsk  atomic.Int64 // claims of PostgreSQL's that do
	commits  atomic.Bool  // commits are held up, or their answers are late or lost

	mu    sync.Mutex
	conns map[*wire]bool
}

// door is where one process comes in, so that it can be cut off alone. It has a listener for each port of the server.
type door struct {
	listeners []net.Listener
	clogged   atomic.Bool
}

// addr is where the first port of the server is.
func (d *door) addr() string { return d.listeners[0].Addr().String() }

func (d *door) close() {
	for _, l := range d.listeners {
		l.Close()
	}
}

// wire is one connection through a proxy.
type wire struct {
	door           *door
	client, server net.Conn
	listens        atomic.Bool  // it has asked for notifications
	lose           atomic.Bool  // its next answer is lost
	claims         [][]byte     // names of statements that claim
	slow           atomic.Int64 // its next answer comes so late, in nanoseconds
	clogged        atomic.Bool  // nothing passes, and nobody is told
}

func newProxy(targets ...string) *proxy { return &proxy{targets: targets, conns: map[*wire]bool{}} }

// open makes a door, which its process's end closes.
func (p *proxy) open() (*door, error) {
	d := &door{}
	for _, target := range p.targets {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			d.close()
			return nil, err
		}
		d.listeners = append(d.listeners, l)
		go func() {
			for {
				client, err := l.Accept()
				if err != nil {
					return
				}
				go p.connect(d, client, target)
			}
		}()
	}
	return d, nil
}

func (p *proxy) connect(d *door, client net.Conn, target string) {
	if p.refuse.Load() {
		reset(client)
		return
	}
	server, err := net.DialTimeout("tcp", target, 5*time.Second)
	if err != nil {
		reset(client)
		return
	}
	w := &wire{door: d, client: client, server: server}
	p.mu.Lock()
	p.conns[w] = true
	p.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { p.pump(w, client, server, true) })
	both.Go(func() { p.pump(w, server, client, false) })
	both.Wait()
	p.mu.Lock()
	delete(p.conns, w)
	p.mu.Unlock()
}

func (p *proxy) pump(w *wire, from, to net.Conn, up bool) {
	defer w.client.Close()
	defer w.server.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 && !p.pass(w, to, buffer[:n], up) {
			return
		}
		if err != nil {
			return
		}
	}
}

// pass hands a piece on, and reports whether the connection lives.
func (p *proxy) pass(w *wire, to net.Conn, piece []byte, up bool) bool {
	if up && bytes.Contains(piece, []byte("listen ")) {
		w.listens.Store(true)
	}
	if up && (take(&p.lateNext) || w.isClaim(piece) && take(&p.lateAsk)) {
		return w.late(piece, rand.IntN(2) == 0, time.Second/4+rand.N(4*time.Second))
	}
	if up && take(&p.loseNext) {
		w.lose.Store(true)
	}
	if up && p.commits.Load() && isCommit(piece) && !w.commit(piece) {
		return false
	}
	if !up {
		time.Sleep(time.Duration(w.slow.Swap(0)))
		if w.lose.Load() {
			reset(w.client)
			return false
		}
	}
	if !up && w.listens.Load() && p.deaf.Load() {
		return true
	}
	for w.clogged.Load() || w.door.clogged.Load() {
		time.Sleep(10 * time.Millisecond)
	}
	if d := p.latency.Load(); d > 0 {
		time.Sleep(time.Duration(d/2 + rand.Int64N(d)))
	}
	step := len(piece)
	if p.sliced.Load() {
		step = 1
	}
	for len(piece) > 0 {
		n, err := to.Write(piece[:min(step, len(piece))])
		if err != nil {
			return false
		}
		piece = piece[n:]
	}
	return true
}

// take takes one of what is left to take.
func take(n *atomic.Int64) bool { return n.Load() > 0 && n.Add(-1) >= 0 }

// isClaim reports whether a request runs a statement that claims, which it also learns
// the name of when that is prepared: of PostgreSQL.
func (w *wire) isClaim(piece []byte) bool {
	if bytes.Contains(piece, []byte(".claim($1")) || bytes.Contains(piece, []byte(".exchange($1")) {
		if name, _, ok := bytes.Cut(piece[min(5, len(piece)):], []byte{0}); ok && piece[0] == 'P' && len(name) > 0 {
			w.claims = append(w.claims, append(bytes.Clone(name), 0))
			return false // it is prepared for good
		}
		return true
	}
	return slices.ContainsFunc(w.claims, func(name []byte) bool { return bytes.Contains(piece, name) })
}

// late delivers a request after a while, though its client may have given up by then, as
// a network does that sends again what was lost. The client is told at once that its
// connection is gone, or hears nothing. The connection ends with it.
func (w *wire) late(piece []byte, told bool, by time.Duration) bool {
	if told {
		reset(w.client)
	}
	time.Sleep(by)
	if _, err := w.server.Write(piece); err == nil {
		time.Sleep(time.Second) // the server is at it
	}
	return false
}

// isCommit reports whether a request is a commit by itself, as drivers send it.
func isCommit(piece []byte) bool {
	const most = 16
	return len(piece) <= most && bytes.HasSuffix(bytes.ToLower(bytes.TrimRight(piece, "\x00;")), []byte("commit"))
}

// commit lets something happen to a commit, and reports whether it goes on from here.
func (w *wire) commit(piece []byte) bool {
	soon := rand.N(40 * time.Millisecond)
	switch rand.IntN(4) {
	case 0:
		time.Sleep(soon)
	case 1:
		return w.late(piece, true, soon)
	case 2:
		w.lose.Store(true)
	case 3:
		w.slow.Store(int64(rand.N(3 * time.Second)))
	}
	return true
}

// cut resets some connections.
func (p *proxy) cut(which func(*wire) bool) {
	for _, w := range p.all() {
		if which(w) {
			reset(w.client)
			reset(w.server)
		}
	}
}

func every(*wire) bool { return true }

func (p *proxy) all() []*wire {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]*wire, 0, len(p.conns))
	for w := range p.conns {
		all = append(all, w)
	}
	return all
}

// reset closes a connection so that the other side gets an error, and no end.
func reset(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		t.SetLinger(0)
	}
	c.Close()
}
