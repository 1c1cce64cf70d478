package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tuskqueue/tusk/store"
)

// errRolledBack marks a transaction that the database rolled back because of others (deadlock, serialization
// failure). It may be retried at once.
var errRolledBack = errors.New("rolled back because of a concurrent transaction")

// errUnprepared is the error of a pooler that gives the session to another client after each transaction. Then a
// prepared statement of the driver does not exist, or its name is taken.
var errUnprepared = errors.New("a pooler in transaction mode does not keep prepared statements: add " +
	"default_query_exec_mode=cache_describe to the database URL, or use PgBouncer 1.21 or later")

// byCode maps error codes of the server to errors that a caller can act on. The
// functions in functions/ raise the codes TK….
var byCode = map[string]error{
	"TK001": store.ErrWorkerDead,
	"TK002": store.ErrNotLeader,
	"TK009": store.ErrLate,
	"40001": errRolledBack,
	"40P01": errRolledBack,
	"25006": store.ErrReadOnly,
	"25P03": store.ErrUnavailable, // the transaction of a program that was suspended
	"53100": store.ErrFull,
	"42P01": store.ErrSchemaMissing,
	"3F000": store.ErrSchemaMissing,
	"42883": store.ErrSchemaOld,
	"26000": errUnprepared,
	"42P05": errUnprepared,
	"57P01": store.ErrUnavailable,
	"57P02": store.ErrUnavailable,
	"57P03": store.ErrUnavailable,
	"53300": store.ErrUnavailable,
}

// unstorable are the classes of error codes that the values themselves cause: data errors,
// constraint violations, and exceeded limits of the server.
var unstorable = map[string]bool{"22": true, "23": true, "54": true}

// translate wraps an error of the driver with the corresponding error of package store, if any.
func translate(err error) error {
	if err == nil {
		return nil
	}
	var said *pgconn.PgError
	if errors.As(err, &said) {
		known := byCode[said.Code]
		switch {
		case known != nil:
		case strings.HasPrefix(said.Code, "08"):
			known = store.ErrUnavailable
		case unstorable[said.Code[:2]]:
			known = store.ErrUnstorable
		}
		if known == nil || errors.Is(err, known) {
			return err
		}
		return fmt.Errorf("%w: %w", known, err)
	}
	var refused *pgconn.ConnectError
	var broken net.Error
	if errors.As(err, &refused) || pgconn.SafeToRetry(err) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, io.EOF) ||
		errors.As(err, &broken) && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	return err
}

// neverStored reports whether the error proves that a transaction did not commit, because the server refused it
// or never received it.
func neverStored(err error) bool {
	var said *pgconn.PgError
	if errors.As(err, &said) {
		// After a fatal error, a lost connection (08) or an unknown result (40003), the commit may have happened.
		return said.Severity != "FATAL" && said.Severity != "PANIC" && !strings.HasPrefix(said.Code, "08") &&
			said.Code != "40003"
	}
	var refused *pgconn.ConnectError
	return errors.As(err, &refused) || pgconn.SafeToRetry(err)
}

// isDeadlock reports whether the server ended a transaction because of a deadlock.
func isDeadlock(err error) bool {
	var said *pgconn.PgError
	return errors.As(err, &said) && said.Code == "40P01"
}

// isHeld reports whether a statement gave up waiting for a lock.
func isHeld(err error) bool {
	var said *pgconn.PgError
	return errors.As(err, &said) && said.Code == "55P03"
}

// isMissing reports whether a table or schema does not exist.
func isMissing(err error) bool {
	var said *pgconn.PgError
	return errors.As(err, &said) && (said.Code == "42P01" || said.Code == "3F000")
}
