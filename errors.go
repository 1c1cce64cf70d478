package tusk

import (
	"errors"
	"fmt"

	"github.com/tuskqueue/tusk/internal/lifecycle"
	"github.com/tuskqueue/tusk/internal/run"
	"github.com/tuskqueue/tusk/store"
)

// Errors that a caller can act on, found with errors.Is.
var (
	// ErrInvalid is the root of every error about what a caller passed in. The
	// error itself is an *InvalidError, or for many tasks a *BatchError.
	ErrInvalid = errors.New("invalid")
	// ErrNotFound says that there is no such task, or no schedule, limits, pipeline,
	// operation or workflow of that name.
	ErrNotFound = errors.New("not found")
	// ErrRefused says that a task's state, or another task with its key, does not
	// allow the change, or that a queue is in use (*QueueInUseError).
	ErrRefused = errors.New("refused")
	// ErrUnsupported says that the engine cannot do what was asked.
	ErrUnsupported = store.ErrUnsupported
	// ErrConflict says that somebody else changed the same record at the same time:
	// read it again.
	ErrConflict = store.ErrConflict
	// ErrNotCommitted says that a failed enqueue stored nothing. Without it, what
	// a failed enqueue stored is unknown: repeat it with a key.
	ErrNotCommitted = store.ErrNotCommitted
	// ErrLeaseLost says that the attempt is no longer the task's: another has
	// begun, or somebody finished the task meanwhile.
	ErrLeaseLost = lifecycle.ErrLeaseLost

	// ErrTooManyHung says why a worker stopped by itself: WorkerConfig.MaxHung of its
	// handlers ignore the end of their contexts. Start the process anew.
	ErrTooManyHung = errors.New("too many hung handlers")

	// The causes (context.Cause) for which a handler's context ends early;
	// ErrLeaseLost is the sixth.
	ErrCancelled = lifecycle.ErrCancelled // somebody called the task off
	ErrShutdown  = lifecycle.ErrShutdown  // the worker stops: return it, and the task is handed back
	ErrTimeout   = run.ErrTimeout         // the attempt took longer than its timeout
	ErrStalled   = run.ErrStalled         // the handler gave no sign of life for its stall timeout
	ErrDeadline  = lifecycle.ErrDeadline  // the task has not ended by its deadline
)

// InvalidError says what was wrong with a value, and what would be right.
type InvalidError struct {
	Field string // e.g. "queue"
	Code  string // e.g. "invalid_name", "out_of_range"; stable
	Text  string // e.g. "is 0, want 1 to 10"; for people
}

func (e *InvalidError) Error() string { return e.Field + ": " + e.Text }

// Is makes errors.Is(err, ErrInvalid) true.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

func invalid(field, code, format string, args ...any) error {
	return &InvalidError{Field: field, Code: code, Text: fmt.Sprintf(format, args...)}
}
