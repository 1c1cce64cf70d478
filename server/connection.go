package server

import (
	"context"
	"net"
	"net/http"
	"sync"

	"github.com/tuskqueue/tusk/server/access"
)

// Limits on open connections, of one identity and of all together.
const (
	ownConnections = 500
	maxConnections = 10000
)

// connection is a connection to a client. It belongs to the identity of its latest request.
type connection struct {
	mu    sync.Mutex
	who   string
	place *stay
	over  bool
}

type connectionKey struct{}

// connections makes a server keep track of the open connections and their owners.
func connections(to *http.Server) {
	var open sync.Map // connections by net.Conn
	to.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		of := &connection{}
		open.Store(c, of)
		return context.WithValue(ctx, connectionKey{}, of)
	}
	to.ConnState = func(c net.Conn, state http.ConnState) {
		if state != http.StateClosed && state != http.StateHijacked {
			return
		}
		if of, ok := open.LoadAndDelete(c); ok {
			of.(*connection).end()
		}
	}
}

// belong counts the connection for an identity. If that identity has too many, it returns the limit in words.
func (c *connection) belong(who string, room *room) (full string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.place != nil && c.who == who || c.over {
		return ""
	}
	place, full := room.queue(who, 1)
	if full != "" {
		return full
	}
	if c.place != nil {
		c.place.leave()
	}
	c.who, c.place = who, place
	return ""
}

func (c *connection) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over = true; c.place != nil {
		c.place.leave()
		c.place = nil
	}
}

// Seen records who sent the request. It fails if the sender has too many connections; this connection then ends after
// the response.
func (w *recorder) Seen(r *http.Request, who access.Identity) error {
	w.who = who
	of, ok := r.Context().Value(connectionKey{}).(*connection)
	if !ok {
		return nil
	}
	full := of.belong(who.ID, w.connections)
	if full == "" {
		return nil
	}
	w.Header().Set("Connection", "close")
	return refuse(r.Context(), "%s", full)
}
