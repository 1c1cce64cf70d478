// Package lifecycle decides what happens to a task after an attempt. All such policy is here.
//
// It is pure: no clock, no store, no goroutine. It may use only the types of package store. The end of an attempt
// comes from package run or, if the worker died, from package tend. The Outcome goes to package finish.
package lifecycle

import (
	"errors"
	"fmt"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Defaults for tasks whose settings do not override them.
const (
	DefaultMaxAttempts = 25
	MaxCrashes         = 3 // a task that kills this many workers in a row is quarantined
)

// End is how one run of a handler ended.
type End struct {
	Err   error  // what the handler returned, or what stopped it
	Trace string // stack of a panic or of a hung handler
	Hung  bool   // the handler ignores the end of its context and is still running
	Ran   time.Duration
	Retry RetryFunc // the handler's own policy; nil means the task's
	// Children is set if the handler has spawned children. Without any, ErrWait is a failure: the task would run
	// again at once, for ever.
	Children bool
}

// text returns the error as it is stored.
func (e End) text() string {
	if e.Hung {
		return "hung: " + e.Err.Error() + ", and ignores the end of its context"
	}
	return e.Err.Error()
}

// RetryFunc returns the delay before the next attempt after attempt n failed with err.
type RetryFunc func(n int, err error) time.Duration

// Reasons to stop an attempt from outside. They are causes of its context.
var (
	ErrCancelled = errors.New("task was cancelled")
	ErrShutdown  = errors.New("worker is shutting down")
	ErrLeaseLost = errors.New("lease was lost")
	ErrDeadline  = errors.New("deadline has passed")
)

// ErrWait says that the task waits for its children and runs again afterwards.
var ErrWait = errors.New("waits for its children")

// After decides what happens to a task whose attempt has ended. random is in [0, 1).
func After(t *store.Task, s Settings, end End, random float64) store.Outcome {
	if end.Err == nil {
		return store.Outcome{Task: t, State: store.Completed, Attempt: t.Attempt, Ran: end.Ran, Forget: s.Ephemeral &&
			t.Workflow.IsZero()}
	}
	return afterFailure(t, s, end, random)
}

func afterFailure(t *store.Task, s Settings, end End, random float64) store.Outcome {
	out := store.Outcome{Task: t, Attempt: t.Attempt, Ran: end.Ran}
	if !end.Children && errors.Is(end.Err, ErrWait) {
		end.Err = fmt.Errorf("%w, but this attempt has spawned none: return Wait only after Spawn", end.Err)
	}
	var snooze *SnoozeError
	var stop *StopError
	var later *RetryError
	var unknown *UnknownKindError
	switch err := end.Err; {
	case errors.As(err, &snooze):
		out.State, out.Delay, out.Attempt = store.Scheduled, snooze.Delay, t.Attempt-1
		if out.Unbegun = snooze.Unbegun; out.Unbegun {
			out.Fingerprint = unbegun
		}
	case errors.Is(err, ErrWait) && end.Children:
		out.State, out.Attempt = store.Pending, t.Attempt-1
	case errors.As(err, &unknown):
		unknown.handBack(&out, s)
	case errors.Is(err, ErrShutdown):
		out.State, out.Attempt, out.Crashes = store.Available, t.Attempt-1, t.Crashes
	case errors.Is(err, ErrDeadline):
		out.State, out.Reason = store.Discarded, "its deadline passed while it ran"
		fail(&out, t.Kind, end.text(), end.Trace)
	case errors.Is(err, ErrCancelled):
		out.State, out.Reason = store.Cancelled, "cancelled while it ran"
		if end.Hung {
			fail(&out, t.Kind, end.text(), end.Trace)
		}
	case errors.As(err, &stop):
		out.State, out.Reason = stop.State, stop.Reason
		if stop.Err != nil {
			fail(&out, t.Kind, stop.Err.Error(), end.Trace)
		}
	case t.Attempt >= s.maxAttempts():
		out.State, out.Reason = store.Discarded, gaveUp(t.Attempt)
		fail(&out, t.Kind, end.text(), end.Trace)
	default:
		out.State = store.Retryable
		switch {
		case errors.As(err, &later):
			out.Delay = later.Delay
		case end.Retry != nil:
			out.Delay = clampDelay(end.Retry(t.Attempt, err))
		default:
			out.Delay = s.Backoff.Delay(t.Attempt, random)
		}
		fail(&out, t.Kind, end.text(), end.Trace)
	}
	if out.State == store.Retryable && unknown == nil || snooze != nil {
		giveUpLate(&out, s)
	}
	return out
}

// giveUpLate discards a task whose next run would start after its deadline.
func giveUpLate(out *store.Outcome, s Settings) {
	deadline := s.DeadlineOf(out.Task)
	if deadline.IsZero() || out.Task.ClaimedAt.Add(out.Ran+out.Delay).Before(deadline) {
		return
	}
	out.State, out.Delay, out.Reason = store.Discarded, 0, "it would run again only after its deadline"
}

// Late decides the outcome of a task that was claimed after its deadline. The task is discarded, and the attempt does
// not count.
func Late(t *store.Task) store.Outcome {
	return store.Outcome{Task: t, State: store.Discarded, Attempt: t.Attempt - 1, Crashes: t.Crashes,
		Reason: "its deadline passed before it could start"}
}

// Expired decides the outcome of a task that was claimed after it had expired. The task is discarded, and the attempt
// does not count.
func Expired(t *store.Task) store.Outcome {
	return store.Outcome{Task: t, State: store.Discarded, Attempt: t.Attempt - 1, Crashes: t.Crashes,
		Reason: "expired before it could start"}
}

// Damaged returns the error of a task that its engine could not read, or nil if it could. The error discards the
// task.
func Damaged(t *store.Task) error {
	if t.Damage == "" {
		return nil
	}
	return &StopError{State: store.Discarded, Reason: "damaged in the database: " + t.Damage}
}

// Died decides the outcome of a task whose worker died. The attempt does not count, because the task itself did not
// fail. But a task that keeps killing its workers is quarantined, and its args are not read again. The first crash
// makes the task a suspect. From then on, a crash counts only if the handler had begun. The task keeps its turn, and
// thus its place: the tasks behind it do not overtake it.
func Died(t *store.Task, s Settings, begun bool, random float64) store.Outcome {
	out := store.Outcome{Task: t, State: store.Retryable, Attempt: t.Attempt - 1, Crashes: t.Crashes, KeepTurn: t.Turn}
	text := "worker " + t.Worker.String() + " died"
	if begun || t.Crashes == 0 {
		out.Crashes++
	}
	if out.Crashes >= MaxCrashes {
		out.State, out.Attempt, out.KeepTurn = store.Discarded, t.Attempt, false
		out.Reason = fmt.Sprintf("quarantined: %d workers in a row died while they held it, the last %d while they ran it",
			out.Crashes, out.Crashes-1)
	} else if begun && out.Crashes > 1 {
		out.Delay = s.Backoff.Delay(out.Crashes-1, random)
	}
	fail(&out, t.Kind, text, "")
	return out
}

func fail(out *store.Outcome, kind, text, trace string) {
	out.Error, out.Trace = Clean(text, maxErrorBytes), Clean(trace, maxTraceBytes)
	out.Fingerprint = Fingerprint(kind, out.Error)
}

// SnoozeError asks to run the task again later without counting the attempt.
type SnoozeError struct {
	Delay   time.Duration
	Unbegun bool // its handler has not begun
}

func (e *SnoozeError) Error() string { return "snoozed for " + e.Delay.String() }

// RetryError is a failure that sets the delay before the next attempt.
type RetryError struct {
	Delay time.Duration
	Err   error
}

func (e *RetryError) Error() string { return e.Err.Error() }

// unbegun marks the attempts that ended before their handler began.
const unbegun = "unbegun"

// Unbegun reports whether a task, read with its Detail, waits because it was postponed before its handler began. It
// may have been changed since.
func Unbegun(t *store.Task) bool {
	if t.Detail == nil || len(t.Detail.Attempts) == 0 {
		return false
	}
	last := t.Detail.Attempts[len(t.Detail.Attempts)-1]
	return last.Outcome == store.Scheduled && last.Fingerprint == unbegun
}

// Unwrap returns the failure itself.
func (e *RetryError) Unwrap() error { return e.Err }

// StopError ends a task permanently.
type StopError struct {
	State  store.State // Cancelled or Discarded
	Reason string
	Err    error // nil if it is not a failure
}

func (e *StopError) Error() string {
	if e.Err != nil {
		return e.Err.Error()
	}
	return e.Reason
}

// Unwrap returns the failure, or nil.
func (e *StopError) Unwrap() error { return e.Err }

func gaveUp(attempts int) string {
	if attempts == 1 {
		return "gave up after 1 attempt"
	}
	return fmt.Sprintf("gave up after %d attempts", attempts)
}
