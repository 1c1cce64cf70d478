// Package sqlite is the embedded engine: the ledger of a task queue in one SQLite
// file, which may be the program's own database.
//
// It may touch that file and nothing else, through a database/sql pool that
// somebody else opened: it imports no driver (package sqlitefile does). Data
// comes in from package tusk by the methods of store.Store, and goes down into
// the tables named tusk_….
//
// SQLite has one writer at a time, so the order of commits is the order of
// positions, and a lane can be claimed by moving a cursor: see
// migrations/00001_ledger.sql for the tables, write.go for how concurrent calls
// share one transaction, and claim.go for the cursor.
package sqlite
