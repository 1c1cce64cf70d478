//go:build !race

package tusk_test

const underRace = false
