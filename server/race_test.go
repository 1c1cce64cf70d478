//go:build race

package server_test

// raced says that the race detector is on. SQLite is then ten times slower.
const raced = true
