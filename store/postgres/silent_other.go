//go:build !unix || aix || solaris || illumos

package postgres

import "net"

// silent cannot look at sockets on this operating system.
func silent(net.Conn) bool { return false }
