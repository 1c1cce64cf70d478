//go:build race

package tusk_test

// underRace has the tests that go through many bubbles go through fewer: the
// race detector's own tables overflow, now and then, where there are too many.
const underRace = true
