package tusk

import (
	"errors"
	"fmt"

	"github.com/tuskqueue/tusk/internal/lifecycle"
	"github.com/tuskqueue/tusk/internal/run"
	"github.com/tuskqueue/tusk/store"
)

// Errors that a caller can act on. Test for them with errors.Is.
var (
	// ErrInvalid matches every error about invalid input. The error itself is an *InvalidError, or a *BatchError
	// for many tasks.
	ErrInvalid = errors.New("invalid")
	// ErrNotFound says that no such task, schedule, pipeline, operation or workflow exists, or that a queue has no
	// limits.
	ErrNotFound = errors.New("not found")
	// ErrRefused says that the task's state, or another task with its key, does not allow the change, or that a
	// queue is in use (*QueueInUseError).
	ErrRefused = errors.New("refused")
	// ErrUnsupported says that the engine does not support the request.
	ErrUnsupported = store.ErrUnsupported
	// ErrConflict says that somebody else changed the same record at the same time: read it again.
	ErrConflict = store.ErrConflict
	// ErrNotCommitted says that a failed enqueue stored nothing. After any other error of an enqueue except
	// ErrInvalid it is unknown what was stored: repeat it with a key.
	ErrNotCommitted = store.ErrNotCommitted
	// ErrLeaseLost says that the attempt no longer owns the task: another attempt has begun, or somebody has
	// finished the task.
	ErrLeaseLost = lifecycle.ErrLeaseLost

	// ErrTooManyHung is returned by a worker that stopped by itself because WorkerConfig.MaxHung of its handlers
	// ignore the end of their contexts. Restart the process.
	ErrTooManyHung = errors.New("too many hung handlers")

	// The causes (context.Cause) for which a handler's context ends early. ErrLeaseLost is the sixth.
	ErrCancelled = lifecycle.ErrCancelled // somebody cancelled the task
	ErrShutdown  = lifecycle.ErrShutdown  // the worker is shutting down: return it to hand the task back
	ErrTimeout   = run.ErrTimeout         // the attempt took longer than its timeout
	ErrStalled   = run.ErrStalled         // the handler gave no sign of life for its stall timeout
	ErrDeadline  = lifecycle.ErrDeadline  // the task did not end by its deadline
)

// InvalidError says what is wrong with a value and what would be valid.
type InvalidError struct {
	Field string // for example "queue"
	Code  string // for example "invalid_name" or "out_of_range"; stable
	Text  string // for example "is 0, want 1 to 10"; for people
}

func (e *InvalidError) Error() string { return e.Field + ": " + e.Text }

// Is makes errors.Is(err, ErrInvalid) true.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

func invalid(field, code, format string, args ...any) error {
	return &InvalidError{Field: field, Code: code, Text: fmt.Sprintf(format, args...)}
}
