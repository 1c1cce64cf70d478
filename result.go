package tusk

import (
	"fmt"
	"time"

	"github.com/tuskqueue/tusk/internal/lifecycle"
	"github.com/tuskqueue/tusk/store"
)

// A handler says how its attempt ended by its return value: nil completes the task, an error fails the attempt,
// which is then retried under the task's policy, and the errors below have other meanings.

// Snooze is returned by a handler that wants to be called again after d. The attempt does not count.
func Snooze(d time.Duration) error { return &lifecycle.SnoozeError{Delay: max(d, 0)} }

// Cancel is returned by a handler to cancel the task permanently. The attempt does not count as failed.
func Cancel(reason string) error {
	return &lifecycle.StopError{State: store.Cancelled, Reason: lifecycle.Clean(reason, 1<<10)}
}

// Discard is returned by a handler when a retry would not help: the task is discarded (other systems call it a
// dead letter), with err as its error.
func Discard(err error) error {
	if err == nil {
		return &lifecycle.StopError{State: store.Discarded, Reason: "discarded by its handler"}
	}
	return &lifecycle.StopError{State: store.Discarded, Reason: "discarded by its handler", Err: err}
}

// RetryAfter is returned by a handler whose attempt failed with err, to set the delay before the next attempt
// instead of the policy. The attempt counts.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		err = fmt.Errorf("to be retried after %v", d)
	}
	return &lifecycle.RetryError{Delay: max(d, 0), Err: err}
}
