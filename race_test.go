//go:build race

package tusk_test

// underRace makes tests with many bubbles use fewer: the race detector's own tables
// sometimes overflow if there are too many.
const underRace = true
