package store

import (
	"errors"
	"fmt"
	"slices"
)

// Errors that a caller can act on. Engines wrap them with the name of the call, so find them with errors.Is.
var (
	ErrWorkerDead   = errors.New("worker was declared dead: its leases are lost")
	ErrNotLeader    = errors.New("not the leader: the term is over")
	ErrLate         = errors.New("a later beat of the worker was accepted before")
	ErrConflict     = errors.New("changed by somebody else meanwhile")
	ErrNotCommitted = errors.New("nothing was stored")
	ErrUnsupported  = errors.New("not supported by this engine")
	ErrUnstorable   = errors.New("the database cannot hold these values") // now or later

	// ErrUnavailable may be temporary. The others require a repair of the database.
	ErrUnavailable   = errors.New("database is not available")
	ErrReadOnly      = errors.New("database is read-only")
	ErrFull          = errors.New("storage is full: free some space on the disk that holds the database")
	ErrMoved         = errors.New("database was restored from another server: stop all workers and run tusk db rebase")
	ErrSchemaMissing = errors.New(
		"database has no Tusk schema, or lacks the functions of this program: run tusk migrate up, or call the " +
			"engine's Migrate")
	ErrSchemaOld     = errors.New("database schema is older than this program: run tusk migrate up")
	ErrSchemaNew     = errors.New("database schema is newer than this program: upgrade the program")
	ErrSchemaForeign = errors.New("database has tables that are not Tusk's under Tusk's names")
)

// IsForAll reports whether a call failed for a reason unrelated to the values to be written. Writing a part of them
// would fail as well, and all of them can be written once the database is repaired.
func IsForAll(err error) bool {
	for _, reason := range []error{ErrUnavailable, ErrReadOnly, ErrFull, ErrMoved, ErrSchemaMissing, ErrSchemaOld,
		ErrSchemaNew} {
		if errors.Is(err, reason) {
			return true
		}
	}
	return false
}

// HeldError names the tasks that a call has left out, although it did everything else. Retry them later, each in a call
// of its own. The other results of the call are valid.
//
// The reason is the error that it is joined with. Without one, a user's open transaction holds a row that the tasks
// need. Nothing was written for the tasks, except perhaps if the reason is ErrUnavailable without ErrNotCommitted: then
// an answer was lost, and the retry of an outcome that was accepted reports it as lost.
type HeldError struct {
	Tasks []ID // at least one
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("%d tasks were left out, %v is one: try again later; if no other reason is given, an "+
		"open transaction holds them", len(e.Tasks), e.Tasks[0])
}

// OnlyHeld reports whether a HeldError is the only cause of an error: the call has done everything that open
// transactions did not prevent.
func OnlyHeld(err error) bool {
	switch err := err.(type) {
	case *HeldError:
		return true
	case interface{ Unwrap() error }:
		return OnlyHeld(err.Unwrap())
	case interface{ Unwrap() []error }:
		return !slices.ContainsFunc(err.Unwrap(), func(part error) bool { return !OnlyHeld(part) })
	}
	return false
}
