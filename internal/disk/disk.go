// Package disk returns how much space a file system has. It may use only the system.
package disk

// Space is the space of a file system in bytes, as available to an unprivileged process.
type Space struct{ Free, Size int64 }
