package harness

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// Relay stands between a client and a server. It counts how often the client sends after the server
// did, which is a round trip, and how many connections were open at the same time. It costs time,
// so runs through it are not timed.
type Relay struct {
	listener net.Listener
	server   string
	trips    atomic.Int64
	open     atomic.Int64
	most     atomic.Int64
	all      sync.WaitGroup
}

// NewRelay listens on loopback for a server.
func NewRelay(server string) (*Relay, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &Relay{listener: l, server: server}
	r.all.Go(r.accept)
	return r, nil
}

// Addr returns the address for clients.
func (r *Relay) Addr() string { return r.listener.Addr().String() }

// Reset restarts the counts.
func (r *Relay) Reset() { r.trips.Store(0); r.most.Store(r.open.Load()) }

// Counted returns the counts since the last Reset.
func (r *Relay) Counted() (trips, connections int) { return int(r.trips.Load()), int(r.most.Load()) }

// Close accepts no more connections. Open ones continue.
func (r *Relay) Close() error { return r.listener.Close() }

func (r *Relay) accept() {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", r.server)
		if err != nil {
			client.Close()
			continue
		}
		r.most.Store(max(r.most.Load(), r.open.Add(1)))
		var answered atomic.Bool
		answered.Store(true)
		go func() {
			pass(server, client, func() {
				if answered.Swap(false) {
					r.trips.Add(1)
				}
			})
			server.Close()
		}()
		go func() {
			pass(client, server, func() { answered.Store(true) })
			client.Close()
			r.open.Add(-1)
		}()
	}
}

func pass(to io.Writer, from io.Reader, seen func()) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			seen()
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
