// Package migrate applies the steps of an engine's schema, up and down. A step is an SQL
// file that is named by its version, such as 00001_ledger.sql. Goose runs it and keeps
// the applied versions in a table. What differs between databases, such as how concurrent
// migrations are coordinated, is part of the engine.
package migrate

import (
	"cmp"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/tuskqueue/tusk/store"
)

// Read returns the steps in the folder migrations, in the order of their versions.
func Read(files fs.FS) ([]store.Migration, error) {
	names, err := fs.Glob(files, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	steps := make([]store.Migration, len(names))
	for i, file := range names {
		text, err := fs.ReadFile(files, file)
		if err != nil {
			return nil, err
		}
		number, name, _ := strings.Cut(strings.TrimSuffix(path.Base(file), ".sql"), "_")
		version, err := strconv.ParseInt(number, 10, 64)
		if err != nil || i > 0 && version <= steps[i-1].Version {
			return nil, fmt.Errorf("migration %s: want a version of its own", file)
		}
		steps[i] = store.Migration{Version: version, Name: name, SQL: string(text)}
	}
	return steps, nil
}

// Newest returns the version of the last step in the folder migrations of embedded files.
func Newest(files fs.FS) int64 {
	steps, err := Read(files)
	if err != nil {
		panic(err)
	}
	return steps[len(steps)-1].Version
}

// Find returns the step of a version, or nil if there is none.
func Find(steps []store.Migration, version int64) *store.Migration {
	at, found := slices.BinarySearchFunc(steps, version, func(m store.Migration, v int64) int {
		return cmp.Compare(m.Version, v)
	})
	if !found {
		return nil
	}
	return &steps[at]
}

// Target returns the requested version. -1 means the newest.
func Target(version, newest int64) (int64, error) {
	switch {
	case version < 0:
		return newest, nil
	case version > newest:
		return 0, fmt.Errorf("there is no version %d, the newest is %d", version, newest)
	}
	return version, nil
}

// Fits fails unless a database has the version that a program needs.
func Fits(at, newest int64) error {
	if at == 0 {
		return store.ErrSchemaMissing
	}
	if at < newest {
		return fmt.Errorf("%w (version %d, want %d)", store.ErrSchemaOld, at, newest)
	}
	return Known(at, newest)
}

// Known fails if a database has a version that a program does not know.
func Known(at, newest int64) error {
	if at > newest {
		return fmt.Errorf("%w (version %d, want %d)", store.ErrSchemaNew, at, newest)
	}
	return nil
}

// Taken returns the steps that goose has just applied.
func Taken(steps []store.Migration, results []*goose.MigrationResult) []store.Migration {
	taken := make([]store.Migration, len(results))
	for i, r := range results {
		taken[i] = *Find(steps, r.Source.Version)
		if r.Direction == "up" {
			taken[i].AppliedAt = time.Now().UTC()
		}
	}
	return taken
}
