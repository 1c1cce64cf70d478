// Package archive keeps finished tasks in object storage, as Parquet files that common tools
// read, once retention is over for them in the database.
//
// A Runner moves them: it reads what an engine hands over (store.Archiver), writes files, notes
// them, and has the engine delete exactly what was noted. Wherever a process dies in between,
// the next one goes on from the note, so that each finished task is in the database or in the
// archive, and is counted once by the manifests. An Archive finds tasks again.
//
// It imports package store and the rules of retention, Parquet and the interface of object
// storage. Drivers are in package place. Data goes from an engine through here into files,
// and from files up to who asks.
package archive
