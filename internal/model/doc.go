// Package model holds a formal model of a lease in TLA+, and a test that has a model checker
// explore it. It contains no code. docs/design/model.md explains lease.tla.
package model
