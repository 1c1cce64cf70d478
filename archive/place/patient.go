package place

import (
	"context"
	"net"
	"net/http"
	"time"
)

// dial returns a function that connects so that a server which stalls is noticed like one that is
// gone.
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

// transport uses a connection for each request. With HTTP/2, the bytes of one request would hide
// that another one stalls.
func transport(patience time.Duration) *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext, t.MaxIdleConnsPerHost = dial(patience), 10
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP1(true)
	return t
}

// impatient is a connection that fails if no byte moves for patience.
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

// Write implements net.Conn. It also extends the deadline of a reader that waits meanwhile.
func (c *impatient) Write(p []byte) (int, error) {
	if err := c.SetDeadline(time.Now().Add(c.patience)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}
