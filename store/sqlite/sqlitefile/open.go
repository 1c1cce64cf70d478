// Package sqlitefile opens a database file for package sqlite with the driver
// modernc.org/sqlite, which is written in Go. It is apart so that a program that
// brings another driver does not link two under one name.
//
// It may touch the file that the DSN names, and create it. The open pool goes
// into package sqlite.
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

// Open opens a database file, and creates it if it does not exist, for this user
// alone. Migrate makes the tables, or brings them up to date. Close the store to close
// the file. These name the same one:
//
//	tusk.db
//	sqlite:tusk.db
//	file:tusk.db
//
// and sqlite:///var/lib/tusk.db or sqlite:/var/lib/tusk.db an absolute one. What
// follows a question mark goes to the driver, such as _pragma=cache_size(-65536).
func Open(ctx context.Context, dsn string) (*sqlite.Store, error) {
	db, err := Pool(dsn)
	if err != nil {
		return nil, err
	}
	s, err := sqlite.Own(ctx, db)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dsn, err)
	}
	return s, nil
}

// Pool opens the pool that Open makes a store of, for a program that keeps its
// own tables in the same file. Transactions begin as immediate ones, which is
// what those shared with a store should do.
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

// parse takes a DSN apart into a path and what is for the driver.
func parse(dsn string) (string, url.Values, error) {
	name, raw, _ := strings.Cut(dsn, "?")
	for _, scheme := range []string{"sqlite3:", "sqlite:", "file:"} {
		if rest, ok := strings.CutPrefix(name, scheme); ok {
			name = rest
			break
		}
	}
	if rest, ok := strings.CutPrefix(name, "//"); ok {
		// The text between two slashes and a third would be a host's name.
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

// preparing keeps two goroutines from creating a file at the same time. A process
// that closes a file loses all its locks on it, those that SQLite holds for
// another connection too: so a file that exists is never opened here.
var preparing sync.Mutex

// prepare creates the file if there is none, and refuses what can be told to go
// wrong without opening a database.
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
	for _, what := range []string{path, dir} { // SQLite puts two more files into the directory
		if err := writable(what); err != nil {
			return fmt.Errorf("%w: this user may not write %s: change its owner or mode: %w", store.ErrReadOnly, what, err)
		}
	}
	return nil
}

// create makes an empty file for this user alone, which is an empty database.
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
