//go:build unix

package sqlitefile

import "syscall"

// errReadOnlyFS is what creating a file on a read-only file system fails with.
var errReadOnlyFS error = syscall.EROFS
