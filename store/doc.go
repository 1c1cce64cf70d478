// Package store is the contract between Tusk and its engines: the terms of a task queue as plain types, and the
// interface that every engine implements.
//
// The callers (package tusk and the packages in internal) decide; an engine (package store/memory, store/sqlite, …)
// stores. This package imports only the standard library.
//
// # Promises
//
// The following holds for every method of every engine. Package storetest tests it clause by clause.
//
//   - Every write takes a batch. Each item of a batch is atomic together with
//     what follows from it; the batch as a whole need not be. After an error
//     some items may have been written and others not.
//   - One bad item never fails its batch.
//   - Callers pass durations, engines return instants: an engine judges due times, leases and terms by its
//     database's clock and never by a caller's. Instants are precise to the millisecond at least.
//   - A finish is accepted once per task and lease token. A later one with that token, or one with another token,
//     changes nothing.
//   - The effects of a method that returned nil survive the death of every process, including the database server.
//     Claims are the exception: a claim that is lost in a crash leaves the task available.
//   - Methods may be called from many goroutines and many processes at once.
//     Slices passed to an engine are not kept after the call returns.
//   - A call that finds nothing to do writes nothing.
//   - An error names the call, once ("enqueue: …"), so callers need not add it.
package store
