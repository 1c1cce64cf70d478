package lifecycle

import (
	"errors"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// ErrUnknownKind says that the worker has no handler for the task's kind.
var ErrUnknownKind = errors.New("no handler for this kind")

// UnknownKindError is ErrUnknownKind together with what the worker knows about the task.
type UnknownKindError struct {
	Times     int  // how often this worker has handed it back before
	Elsewhere bool // another live worker has a handler for it
	Free      bool // that worker has a free slot
	Noted     bool // no worker has a handler, and the leader knows to recall the task when one appears
}

// mostChances is how often a worker may claim a task by chance before it concludes that others
// cannot take it.
const mostChances = 20

// A stranger is a task of a kind that no worker has a handler for. It is postponed for as long as it has existed,
// within these limits.
const (
	shortestPutOff = time.Hour
	LongestPutOff  = 24 * time.Hour
)

// strange is the error of postponed tasks. Only this text distinguishes them from other waiting tasks.
const strange = "no living worker of its queue has a handler for this kind"

// StrangerPrint is the fingerprint of the tasks of a kind that were postponed because no worker had a handler.
func StrangerPrint(kind string) string { return Fingerprint(kind, strange) }

func (e *UnknownKindError) Error() string { return ErrUnknownKind.Error() }

// Unwrap makes errors.Is(err, ErrUnknownKind) true.
func (e *UnknownKindError) Unwrap() error { return ErrUnknownKind }

// handBack hands the task back without counting the attempt.
func (e *UnknownKindError) handBack(out *store.Outcome, s Settings) {
	t := out.Task
	out.State, out.Delay, out.Attempt, out.Crashes = store.Scheduled, e.delay(), t.Attempt-1, t.Crashes
	if e.Noted && !e.Elsewhere {
		out.State, out.Delay = store.Retryable, putOff(t, s)
		fail(out, t.Kind, strange, "")
	}
}

// Blocks reports whether a task whose attempt ended with err keeps its turn in a queue whose failed tasks block
// others. A task of a kind without a handler gives it back: it would block others for as long as no worker has its
// kind.
func Blocks(out *store.Outcome, err error) bool {
	return out.State == store.Retryable && !errors.Is(err, ErrUnknownKind)
}

// delay keeps the task away from this worker. If another worker has a handler and a free slot, the
// delay is short, however often this worker has claimed the task by chance. If that worker is busy,
// or no worker has a handler, the delay grows each time. If a free worker has not taken the task
// after mostChances, some limit probably keeps it from doing so, and the delay grows as well.
func (e *UnknownKindError) delay() time.Duration {
	first, growth, most := 5*time.Second, time.Duration(2), 15*time.Second
	times := e.Times
	if e.Elsewhere {
		first, growth, most = 100*time.Millisecond, 4, 5*time.Second
	}
	if e.Free {
		times = max(0, times-mostChances)
	}
	for range times {
		if first *= growth; first >= most {
			return most
		}
	}
	return first
}

// putOff returns how long a stranger waits if it is not recalled: at most until its expiry or deadline, so that it
// ends on time.
func putOff(t *store.Task, s Settings) time.Duration {
	delay := min(max(t.ClaimedAt.Sub(t.EnqueuedAt), shortestPutOff), LongestPutOff)
	for _, end := range []time.Time{t.ExpiresAt, s.DeadlineOf(t)} {
		if !end.IsZero() {
			delay = min(delay, max(end.Sub(t.ClaimedAt), 0))
		}
	}
	return delay
}
