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

// proxy sits between the processes of a storm and their database server, and produces network faults.
type proxy struct {
	targets []string // host:port of each port of the server

	// Nanoseconds added to each chunk in each direction.
	latency  atomic.Int64
	sliced   atomic.Bool            // in chunks of one byte
	refuse   atomic.Bool            // new connections are closed at once
	away     atomic.Pointer[string] // the same, for those to this target
	deaf     atomic.Bool            // connections that listen for notifications receive none
	loseNext atomic.Int64           // answers to lose: the server gets the request, the client gets a reset
	lateNext atomic.Int64           // requests that arrive seconds late, when their client has gone
	lateAsk  atomic.Int64           // the same, for PostgreSQL's claims
	commits  atomic.Bool            // commits are delayed, or their answers are delayed or lost

	mu      sync.Mutex
	conns   map[*wire]bool
	stalled map[*func(*wire) bool]bool // nothing passes on the wires that one of these chooses
}

// door is the entrance of one process, so that this process can be cut off alone. It has a listener for each port of
// the server.
type door struct {
	listeners []net.Listener
	clogged   atomic.Bool
}

// addr returns the address for the first port of the server.
func (d *door) addr() string { return d.listeners[0].Addr().String() }

func (d *door) close() {
	for _, l := range d.listeners {
		l.Close()
	}
}

// wire is a connection through a proxy.
type wire struct {
	door           *door
	target         string
	client, server net.Conn
	listens        atomic.Bool  // it has requested notifications
	lose           atomic.Bool  // its next answer is lost
	claims         [][]byte     // names of prepared statements that claim
	slow           atomic.Int64 // delay of its next answer, in nanoseconds
	clogged        atomic.Bool  // nothing passes, and neither side is told
}

func newProxy(targets ...string) *proxy {
	return &proxy{targets: targets, conns: map[*wire]bool{}, stalled: map[*func(*wire) bool]bool{}}
}

// open makes a door, which is closed when its process ends.
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
	if away := p.away.Load(); p.refuse.Load() || away != nil && *away == target {
		reset(client)
		return
	}
	server, err := net.DialTimeout("tcp", target, 5*time.Second)
	if err != nil {
		reset(client)
		return
	}
	w := &wire{door: d, target: target, client: client, server: server}
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

// pass forwards a chunk, and reports whether the connection is still open.
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
	for w.clogged.Load() || w.door.clogged.Load() || p.stalls(w) {
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

// take decrements n if it is positive, and reports whether it did.
func take(n *atomic.Int64) bool { return n.Load() > 0 && n.Add(-1) >= 0 }

// isClaim reports whether a request runs a statement that claims, on PostgreSQL. It also learns the name of such a
// statement when it is prepared.
func (w *wire) isClaim(piece []byte) bool {
	if bytes.Contains(piece, []byte(".claim($1")) || bytes.Contains(piece, []byte(".exchange($1")) {
		if name, _, ok := bytes.Cut(piece[min(5, len(piece)):], []byte{0}); ok && piece[0] == 'P' && len(name) > 0 {
			w.claims = append(w.claims, append(bytes.Clone(name), 0))
			return false // this only prepares it
		}
		return true
	}
	return slices.ContainsFunc(w.claims, func(name []byte) bool { return bytes.Contains(piece, name) })
}

// late delivers a request after a while, although its client may have given up by then, like a network that
// retransmits lost data. The client either gets a reset at once or hears nothing. The connection ends afterwards.
func (w *wire) late(piece []byte, told bool, by time.Duration) bool {
	if told {
		reset(w.client)
	}
	time.Sleep(by)
	if _, err := w.server.Write(piece); err == nil {
		time.Sleep(time.Second) // for the server to work on it
	}
	return false
}

// isCommit reports whether a request is only a commit, as drivers send it.
func isCommit(piece []byte) bool {
	const most = 16
	return len(piece) <= most && bytes.HasSuffix(bytes.ToLower(bytes.TrimRight(piece, "\x00;")), []byte("commit"))
}

// commit applies a fault to a commit, and reports whether the caller should continue.
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

// stall stalls some connections, and new ones like them, until end is called.
func (p *proxy) stall(which func(*wire) bool) (end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stalled[&which] = true
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.stalled, &which)
	}
}

func (p *proxy) stalls(w *wire) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for which := range p.stalled {
		if (*which)(w) {
			return true
		}
	}
	return false
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

// reset closes a connection so that the other side gets an error instead of an end.
func reset(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		t.SetLinger(0)
	}
	c.Close()
}
