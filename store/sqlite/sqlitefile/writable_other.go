//go:build !unix

package sqlitefile

import "io/fs"

// errReadOnlyFS has no code of its own on this operating system.
var errReadOnlyFS = fs.ErrPermission

// writable leaves the check to SQLite.
func writable(string) error { return nil }
