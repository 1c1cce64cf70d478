package postgres

import (
	"context"
	"net"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// doubtful reports whether the pool has to ping a connection before it uses it: if it was idle for long, or if its
// socket is readable or has failed, which means that the server has closed it. A ping is a round trip. By default,
// the pool pings each connection that was idle for a second, which would affect most calls of a process with little
// work. MySQL's driver checks the socket in the same way.
func doubtful(_ context.Context, p pgxpool.ShouldPingParams) bool {
	return p.IdleDuration > idleConn || p.IdleDuration > time.Second && !silent(p.Conn.PgConn().Conn())
}

// socket returns the connection below the encryption.
func socket(c net.Conn) net.Conn {
	if encrypted, ok := c.(interface{ NetConn() net.Conn }); ok {
		return encrypted.NetConn()
	}
	return c
}
