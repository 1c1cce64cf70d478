// Package disk says how much room a file system has. It may touch nothing but the system.
package disk

// Space is the room of a file system in bytes, as an unprivileged process may use it.
type Space struct{ Free, Size int64 }
