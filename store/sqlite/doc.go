// Package sqlite is the embedded engine: the ledger of a task queue in one SQLite file, which may be the program's own
// database.
//
// It may use only that file, through a database/sql pool that the caller has opened. It imports no driver (package
// sqlitefile does). Its tables are named tusk_….
//
// SQLite has one writer at a time, so positions have the order of commits, and a claim only needs to move the cursor of
// a lane. See migrations/00001_ledger.sql for the tables, write.go for how concurrent calls share one transaction, and
// claim.go for the cursor.
package sqlite
