package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"

	driversql "github.com/go-sql-driver/mysql"

	"github.com/tuskqueue/tusk/store"
)

// The server's error numbers. MariaDB and MySQL agree on all of them unless a comment says otherwise.
const (
	codeTooManyConnections = 1040
	codeNotReady           = 1047 // a node of Galera that is not part of its cluster
	codeDuplicate          = 1062
	codeShutdown           = 1053
	codeTableMissing       = 1146
	codeUnknownVariable    = 1193
	codeCommitFailed       = 1180
	codeColumnMissing      = 1054
	codeLockTimeout        = 1205
	codeDeadlock           = 1213
	codeNoWait             = 3572 // MySQL's for nowait; MariaDB uses codeLockTimeout
	codeQueryKilled        = 1317
	codeConnectionKilled   = 1927
	codeStatementTime      = 1969 // MariaDB's, for a statement beyond max_statement_time
	codeStatementTimeMySQL = 3024 // MySQL's, for one beyond max_execution_time
	codeDiskFull           = 1021
	codeTableFull          = 1114
	codeReadOnlyOption     = 1290
	codeReadOnlyTx         = 1792
	codeReadOnlyMode       = 1836
	codeNoPartition        = 1507
	codeSamePartition      = 1517
	codeRecordChanged      = 1020
	codeTableChanged       = 1412 // since the snapshot was made
	codeConflict           = 3101 // with another member of a replication group
	codeIdleTooLong        = 4031
	codeNull               = 1048
	codeRowSize            = 1118
	codeOutOfRange         = 1264
	codeIncorrect          = 1292
	codeIncorrectString    = 1366
	codeTooLong            = 1406
	codeConstraint         = 3819
	codeConstraintMariaDB  = 4025
	codeNoProcedure        = 1305
	codeArguments          = 1318  // a procedure was called with the wrong number of arguments
	codeMayNot             = 1370  // alter, drop or execute a procedure
	codeWorkerDead         = 45001 // our procedures return this, and the next
	codeEnded              = 45002
)

// errAgain requests that the transaction be repeated: what it was based on changed before it had its locks.
var errAgain = errors.New("changed by a concurrent transaction")

// codeOf returns the number of an error that the server sent, or 0 for other errors.
func codeOf(err error) uint16 {
	var said *driversql.MySQLError
	if errors.As(err, &said) {
		return said.Number
	}
	return 0
}

// passing reports whether a transaction failed because of others, so that it can be retried at once.
func passing(err error) bool {
	switch codeOf(err) {
	case codeDeadlock, codeLockTimeout, codeNoWait, codeRecordChanged, codeTableChanged, codeConflict, codeDuplicate:
		return true
	}
	return errors.Is(err, errAgain)
}

// held reports whether another transaction holds a lock on a row that a transaction needs.
func held(err error) bool {
	code := codeOf(err)
	return code == codeLockTimeout || code == codeNoWait
}

// Numbers that only clients use. If the server sends one, it is a proxy that has lost its own connection.
const minClientCode, maxClientCode = 2000, 2999

// lostConnection reports whether the connection broke, so that it is unknown whether the operation was done.
func lostConnection(err error) bool {
	var broken net.Error
	switch {
	case err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return false
	case errors.Is(err, driver.ErrBadConn), errors.Is(err, driversql.ErrInvalidConn), errors.Is(err, sql.ErrConnDone),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &broken):
		return true
	}
	switch code := codeOf(err); code {
	case codeShutdown, codeConnectionKilled, codeIdleTooLong, codeNotReady:
		return true
	default:
		return minClientCode <= code && code <= maxClientCode
	}
}

// unsure reports whether an error that came after a commit was sent leaves open whether the commit was stored. All
// errors do but those of the server about a statement before the commit, and those about a commit that was rolled back.
func unsure(err error) bool {
	switch {
	case decided(err), errors.Is(err, errAgain), errors.Is(err, driversql.ErrPktTooLarge):
		return false
	}
	code := codeOf(err)
	return code == 0 || code == codeCommitFailed || lostConnection(err) || interrupted(err)
}

// decided reports whether a transaction has ended itself, so that nothing was stored.
func decided(err error) bool {
	return errors.Is(err, store.ErrWorkerDead) || errors.Is(err, store.ErrNotLeader) ||
		errors.Is(err, store.ErrConflict) || errors.Is(err, errCareful)
}

// demoted reports whether the server takes no writes, perhaps because another one has become the primary.
func demoted(err error) bool {
	switch codeOf(err) {
	case codeReadOnlyOption, codeReadOnlyTx, codeReadOnlyMode:
		return true
	}
	return false
}

// interrupted reports whether the server was made to end a statement while it ran.
func interrupted(err error) bool {
	switch codeOf(err) {
	case codeQueryKilled, codeStatementTime, codeStatementTimeMySQL:
		return true
	}
	return false
}

// explain wraps an error of the driver with the corresponding error of package store.
func explain(err error) error {
	known := meaning(err)
	if known == nil || errors.Is(err, known) {
		return err
	}
	return fmt.Errorf("%w: %w", known, err)
}

// meaning returns the error of package store that a driver's error means, or nil.
func meaning(err error) error {
	if lostConnection(err) {
		return store.ErrUnavailable
	}
	if demoted(err) {
		return store.ErrReadOnly
	}
	switch codeOf(err) {
	case codeTableMissing, codeNoProcedure:
		return store.ErrSchemaMissing
	case codeNull, codeRowSize, codeOutOfRange, codeIncorrect, codeIncorrectString, codeTooLong, codeConstraint,
		codeConstraintMariaDB:
		return store.ErrUnstorable
	case codeDiskFull, codeTableFull:
		return store.ErrFull
	case codeTooManyConnections, codeQueryKilled, codeStatementTime, codeStatementTimeMySQL:
		return store.ErrUnavailable
	}
	return nil
}

// wrap adds the verb to an error. It returns nil for nil.
func wrap(verb string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", verb, explain(err))
}
