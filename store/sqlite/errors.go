package sqlite

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tuskqueue/tusk/store"
)

// SQLite's primary result codes.
const (
	codeError    = 1 // for example, a table or column is missing
	codePerm     = 3
	codeBusy     = 5
	codeLocked   = 6
	codeReadOnly = 8
	codeIOErr    = 10
	codeCorrupt  = 11
	codeFull     = 13
	codeCantOpen = 14
	codeTooBig   = 18
	codeLimit    = 19 // a constraint was violated
	codeMismatch = 20
	codeNotADB   = 26
)

// messages maps SQLite's error texts to codes, for drivers whose errors have no method Code.
var messages = map[string]int{
	"database is locked":                   codeBusy,
	"database table is locked":             codeLocked,
	"attempt to write a readonly database": codeReadOnly,
	"disk I/O error":                       codeIOErr,
	"database disk image is malformed":     codeCorrupt,
	"database or disk is full":             codeFull,
	"unable to open database file":         codeCantOpen,
	"file is not a database":               codeNotADB,
	"access permission denied":             codePerm,
}

// codeOf returns SQLite's primary result code, or 0 if the error is not SQLite's.
func codeOf(err error) int {
	var coded interface{ Code() int }
	if errors.As(err, &coded) {
		return coded.Code() & 0xff
	}
	if err == nil {
		return 0
	}
	for message, code := range messages {
		if strings.Contains(err.Error(), message) {
			return code
		}
	}
	return 0
}

func isBusy(err error) bool {
	code := codeOf(err)
	return code == codeBusy || code == codeLocked
}

// explain adds what a caller can do about an SQLite error.
func explain(err error) error {
	for _, known := range []error{store.ErrUnavailable, store.ErrReadOnly, store.ErrFull, store.ErrSchemaMissing} {
		if errors.Is(err, known) {
			return err
		}
	}
	switch codeOf(err) {
	case codeBusy, codeLocked:
		return fmt.Errorf("%w: another process or transaction holds the database for too long: %w", store.ErrUnavailable, err)
	case codeReadOnly, codePerm:
		return fmt.Errorf("%w: make the file and its directory writable for this user: %w", store.ErrReadOnly, err)
	case codeTooBig, codeLimit, codeMismatch:
		return fmt.Errorf("%w: %w", store.ErrUnstorable, err)
	case codeFull:
		return fmt.Errorf("%w: %w", store.ErrFull, err)
	case codeIOErr:
		return fmt.Errorf("%w: the disk fails: %w", store.ErrUnavailable, err)
	case codeCantOpen:
		return fmt.Errorf("%w: check that the directory exists and that this user may write to it: %w",
			store.ErrUnavailable, err)
	case codeNotADB:
		return fmt.Errorf("the file is not an SQLite database, or an encrypted one: name another file: %w", err)
	case codeCorrupt:
		return fmt.Errorf("the database is damaged: restore it from a backup, or try sqlite3's .recover: %w", err)
	}
	if err != nil && strings.Contains(err.Error(), "no such table: tusk_") {
		return fmt.Errorf("%w: %w", store.ErrSchemaMissing, err)
	}
	return err
}
