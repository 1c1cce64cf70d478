// Package sqlite is the embedded engine: the ledger of a task queue in one SQLite file, which may be the program's own
// database.
//
// It may touch that file and nothing else, through a database/sql pool that somebody else has opened. It imports no
// driver (package sqlitefile does). Data comes from package tusk through the methods of store.Store, and goes down into
// the tables named tusk_….
//
// SQLite has one writer at a time, so positions have the order of commits, and a claim only needs to move the cursor of
// a lane. See migrations/00001_ledger.sql for the tables, write.go for how concurrent calls share one transaction, and
// claim.go for the cursor.
package sqlite
