//go:build unix

package sqlitefile

import "golang.org/x/sys/unix"

// errReadOnlyFS is the error when creating a file on a read-only file system.
var errReadOnlyFS error = unix.EROFS

// writable fails unless this user may write a file or into a directory.
func writable(path string) error { return unix.Access(path, unix.W_OK) }
