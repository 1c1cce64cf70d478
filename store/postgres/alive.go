package postgres

import (
	"context"
	"net"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// doubtful reports whether a connection of the pool is pinged before it is used: where it was idle for long, and where
// its socket has something to say, which is how a server's end shows. A ping is a round trip of its own. By default each
// connection that was idle for a second pays one, and so would most calls of a process with little to do. MySQL's driver
// looks at the socket in the same way.
func doubtful(_ context.Context, p pgxpool.ShouldPingParams) bool {
	return p.IdleDuration > idleConn || p.IdleDuration > time.Second && !silent(p.Conn.PgConn().Conn())
}

// socket returns what carries a connection, without its encryption.
func socket(c net.Conn) net.Conn {
	if encrypted, ok := c.(interface{ NetConn() net.Conn }); ok {
		return encrypted.NetConn()
	}
	return c
}
