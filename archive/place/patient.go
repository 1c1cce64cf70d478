package place

import (
	"context"
	"net"
	"net/http"
	"time"
)

// dial connects so that a server which stalls is noticed like one that is gone.
func dial(patience time.Duration) func(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: patience, KeepAlive: patience}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &impatient{c, patience}, nil
	}
}

// transport has a connection for each request: with HTTP/2 the bytes of one would hide that another
// stalls.
func transport(patience time.Duration) *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext, t.MaxIdleConnsPerHost = dial(patience), 10
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP1(true)
	return t
}

// impatient is a connection on which something has to move.
type impatient struct {
	net.Conn
	patience time.Duration
}

// Read implements net.Conn.
func (c *impatient) Read(p []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(c.patience)); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

// Write implements net.Conn. A reader that waits meanwhile has to wait as long from here.
func (c *impatient) Write(p []byte) (int, error) {
	if err := c.SetDeadline(time.Now().Add(c.patience)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}
