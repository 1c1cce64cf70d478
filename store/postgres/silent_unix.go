//go:build unix && !aix && !solaris && !illumos

package postgres

import (
	"errors"
	"net"
	"syscall"
)

// silent reports whether a connection is open according to its socket, and has received nothing from the other side.
// It peeks at the socket instead of reading, because a read would have to wait for one that the driver may have in
// progress.
func silent(c net.Conn) bool {
	s, ok := socket(c).(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return false
	}
	var found error
	err = raw.Control(func(fd uintptr) {
		_, _, found = syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK)
	})
	return err == nil && errors.Is(found, syscall.EAGAIN)
}
