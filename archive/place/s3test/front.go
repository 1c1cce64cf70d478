package s3test

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// front is where clients reach the server: always at the same address, and only while it lets them.
type front struct {
	listener net.Listener
	server   string
	held     atomic.Bool

	mu    sync.Mutex
	conns map[net.Conn]bool
}

func newFront(server string) (*front, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	f := &front{listener: l, server: server, conns: map[net.Conn]bool{}}
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

func (f *front) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", f.server)
	if err != nil {
		return
	}
	defer server.Close()
	f.mu.Lock()
	f.conns[client], f.conns[server] = true, true
	f.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { f.pump(client, server) })
	both.Go(func() { f.pump(server, client) })
	both.Wait()
	f.mu.Lock()
	delete(f.conns, client)
	delete(f.conns, server)
	f.mu.Unlock()
}

// pump hands on what one end says to the other, until either is closed.
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

// cut closes all connections.
func (f *front) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.conns {
		_ = c.Close()
	}
}
