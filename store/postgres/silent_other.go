//go:build !unix || aix || solaris || illumos

package postgres

import "net"

// silent always returns false, because it cannot inspect sockets on this operating
// system.
func silent(net.Conn) bool { return false }
