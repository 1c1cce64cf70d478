// Package store is the seam of Tusk: the vocabulary of a task queue as plain types, and the interface that every
// engine implements.
//
// Everything above the seam decides (package tusk and the packages in internal). Everything below it remembers
// (package store/memory, store/sqlite, …). This package imports only the standard library. From here data goes down
// into one engine, or up into package tusk.
//
// # The promises
//
// They hold for every method of every engine. Package storetest tests them clause by clause.
//
//   - Every write takes a batch. Each item of a batch is atomic together with
//     what follows from it; the batch as a whole need not be. After an error
//     some items may have been written and others not.
//   - One bad item never fails its batch.
//   - Durations travel down, instants come up: an engine judges due times,
//     leases and terms by its database's clock and never by a caller's.
//     Instants are precise to the millisecond at least.
//   - A finish is accepted once per task and lease token. Whatever comes later
//     with that token, and whatever comes with another, changes nothing.
//   - What a method returned with a nil error survives the death of every
//     process, the database's included. Claims are the exception: a claim that
//     is lost in a crash leaves the task available.
//   - Methods may be called from many goroutines and many processes at once.
//     Slices passed to an engine are not kept after the call returns.
//   - A call that finds nothing to do writes nothing.
//   - An error names the call, once ("enqueue: …"), so that callers need not.
package store
