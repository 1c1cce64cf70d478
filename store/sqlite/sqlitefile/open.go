// Package sqlitefile opens a database file for package sqlite with the driver modernc.org/sqlite, which is written in
// Go. It is separate so that a program with another driver does not link two drivers under one name.
//
// It may create the file that the DSN names. It passes the open pool to package sqlite.
package sqlitefile

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"

	_ "modernc.org/sqlite" // registers the driver "sqlite"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/sqlite"
)

// Open opens a database file, and creates it for this user alone if it does not exist. Migrate creates or updates the
// tables. Close the store to close the file. These DSNs name the same file:
//
//	tusk.db
//	sqlite:tusk.db
//	file:tusk.db
//
// sqlite:///var/lib/tusk.db and sqlite:/var/lib/tusk.db name a file by its absolute path. Parameters after a question
// mark go to the driver, such as _pragma=cache_size(-65536).
func Open(ctx context.Context, dsn string) (*sqlite.Store, error) {
	db, err := Pool(dsn)
	if err != nil {
		return nil, err
	}
	s, err := sqlite.New(ctx, db, sqlite.Options{CloseDB: true})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dsn, err)
	}
	return s, nil
}

// Pool opens the pool that Open uses, for a program that keeps its own tables in the same file. Its transactions begin
// as immediate ones, which transactions shared with a store should do.
func Pool(dsn string) (*sql.DB, error) {
	path, query, err := parse(dsn)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dsn, err)
	}
	if err := prepare(path); err != nil {
		return nil, fmt.Errorf("%s: %w", dsn, err)
	}
	for _, pragma := range []string{"busy_timeout(10000)", "journal_mode(wal)", "synchronous(full)", "foreign_keys(1)"} {
		query.Add("_pragma", pragma)
	}
	if !query.Has("_txlock") {
		query.Set("_txlock", "immediate")
	}
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(),
		RawQuery: query.Encode()}).String())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dsn, err)
	}
	return db, nil
}

// parse splits a DSN into the path and the parameters for the driver.
func parse(dsn string) (string, url.Values, error) {
	name, raw, _ := strings.Cut(dsn, "?")
	for _, scheme := range []string{"sqlite3:", "sqlite:", "file:"} {
		if rest, ok := strings.CutPrefix(name, scheme); ok {
			name = rest
			break
		}
	}
	if rest, ok := strings.CutPrefix(name, "//"); ok {
		// The text between the second and the third slash would be a host name.
		if name = rest; !strings.HasPrefix(rest, "/") && strings.Contains(rest, "/") {
			return "", nil,
				errors.New("a file has no host: write sqlite:dir/file.db, or sqlite:///dir/file.db for an absolute path")
		}
	}
	path, err := url.PathUnescape(name)
	if err != nil {
		return "", nil, fmt.Errorf("the path is not well escaped: write %%25 for a percent sign: %w", err)
	}
	query, err := url.ParseQuery(raw)
	if err != nil {
		return "", nil, fmt.Errorf("the part after the question mark is malformed: %w", err)
	}
	switch {
	case path == "":
		return "", nil, errors.New("no file is named: write sqlite:tusk.db")
	case path == ":memory:", query.Get("mode") == "memory":
		return "", nil, fmt.Errorf("%w: a database in memory is not shared by processes, nor by connections: "+
			"name a file, or use package store/memory", store.ErrUnsupported)
	case query.Get("mode") == "ro":
		return "", nil, fmt.Errorf("%w: leave mode=ro out", store.ErrReadOnly)
	case strings.ContainsRune(path, 0):
		return "", nil, errors.New("the path has a zero byte in it")
	}
	return path, query, nil
}

// preparing keeps two goroutines from creating a file at the same time. If a process closes a file, it loses all its
// locks on it, including those that SQLite holds for another connection. So an existing file is never opened here.
var preparing sync.Mutex

// prepare creates the file if it does not exist, and refuses what will fail for reasons that can be seen without
// opening the database.
func prepare(path string) error {
	preparing.Lock()
	defer preparing.Unlock()
	dir := filepath.Dir(path)
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("directory %s does not exist: create it with mkdir -p %s", dir, dir)
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is not a directory", dir)
	}
	info, err = os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return create(path)
	case err != nil:
		return err
	case info.IsDir():
		return fmt.Errorf("%s is a directory: name a file in it, such as %s", path, filepath.Join(path, "tusk.db"))
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file", path)
	}
	for _, what := range []string{path, dir} { // SQLite creates two more files in the directory
		if err := writable(what); err != nil {
			return fmt.Errorf("%w: this user may not write %s: change its owner or mode: %w", store.ErrReadOnly, what, err)
		}
	}
	return nil
}

// create creates an empty file, which is an empty database, for this user alone.
func create(path string) error {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	switch {
	case errors.Is(err, fs.ErrExist):
		return nil // another process was faster
	case errors.Is(err, fs.ErrPermission), errors.Is(err, errReadOnlyFS):
		return fmt.Errorf("%w: this user may not create %s: name a file elsewhere: %w", store.ErrReadOnly, path, err)
	case err != nil:
		return err
	}
	return file.Close()
}
