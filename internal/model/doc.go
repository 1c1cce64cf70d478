// Package model holds a formal model of a lease, in TLA+, and the test that has a model
// checker explore it. It has no code: docs/design/model.md explains lease.tla.
package model
