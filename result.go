package tusk

import (
	"fmt"
	"time"

	"github.com/tuskqueue/tusk/internal/lifecycle"
	"github.com/tuskqueue/tusk/store"
)

// A handler says how its attempt ended by what it returns: nil completes the
// task, an error fails the attempt, which is retried by the task's policy, and
// the errors below say something else.

// Snooze is returned by a handler to be called again after d. The attempt does
// not count.
func Snooze(d time.Duration) error { return &lifecycle.SnoozeError{Delay: max(d, 0)} }

// Cancel is returned by a handler to call the task off for good. It is no failure.
func Cancel(reason string) error {
	return &lifecycle.StopError{State: store.Cancelled, Reason: lifecycle.Clean(reason, 1<<10)}
}

// Discard is returned by a handler whose failure no retry would mend: the task
// joins the dead letters with err as its error.
func Discard(err error) error {
	if err == nil {
		return &lifecycle.StopError{State: store.Discarded, Reason: "discarded by its handler"}
	}
	return &lifecycle.StopError{State: store.Discarded, Reason: "discarded by its handler", Err: err}
}

// RetryAfter is returned by a handler whose attempt failed with err and that
// knows better than the policy when to try again. The attempt counts.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		err = fmt.Errorf("to be retried after %v", d)
	}
	return &lifecycle.RetryError{Delay: max(d, 0), Err: err}
}
