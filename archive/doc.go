// Package archive keeps finished tasks in object storage once their retention in the database is
// over. They are stored in Parquet files, which common tools can read.
//
// A Runner moves them: it reads what an engine hands over (store.Archiver), writes files, records
// them in the database (the note), and makes the engine delete exactly what was recorded. If a
// process dies in between, the next one continues from the note. So each finished task is in the
// database or in the archive, and the manifests count it once. An Archive finds tasks again.
//
// It imports package store, the rules of retention, Parquet and an interface to object storage. The
// drivers are in package place.
package archive
