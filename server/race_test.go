//go:build race

package server_test

// raced says that the race detector watches, with which SQLite takes ten times as long.
const raced = true
