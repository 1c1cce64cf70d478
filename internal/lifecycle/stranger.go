package lifecycle

import (
	"errors"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// ErrUnknownKind says that the worker has no handler for the task's kind.
var ErrUnknownKind = errors.New("no handler for this kind")

// UnknownKindError is ErrUnknownKind with what the worker knows of the task.
type UnknownKindError struct {
	Times     int  // how often this worker has handed it back before
	Elsewhere bool // another living worker has a handler for it
	Free      bool // and has a free place
	Noted     bool // nobody has one, and the leader knows that it is to be recalled when somebody comes who has
}

// mostChances is how often a worker meets a task by chance before it concludes that others leave it.
const mostChances = 20

// A stranger, a task of a kind that nobody has, is put off for as long as it has existed, within these.
const (
	ShortestPutOff = time.Hour
	LongestPutOff  = 24 * time.Hour
)

// strange is the error of tasks that are put off. It is all that tells them from others that wait.
const strange = "no living worker of its queue has a handler for this kind"

// StrangerPrint is the fingerprint of tasks of a kind that were put off because nobody had it.
func StrangerPrint(kind string) string { return Fingerprint(kind, strange) }

func (e *UnknownKindError) Error() string { return ErrUnknownKind.Error() }

// Unwrap makes errors.Is(err, ErrUnknownKind) true.
func (e *UnknownKindError) Unwrap() error { return ErrUnknownKind }

// handBack gives the task back without counting the attempt.
func (e *UnknownKindError) handBack(out *store.Outcome, s Settings) {
	t := out.Task
	out.State, out.Delay, out.Attempt, out.Crashes = store.Scheduled, e.delay(), t.Attempt-1, t.Crashes
	if e.Noted && !e.Elsewhere {
		out.State, out.Delay = store.Retryable, putOff(t, s)
		fail(out, t.Kind, strange, "")
	}
}

// delay keeps the task out of this worker's way. Where another worker has the kind and a free place,
// the task is soon there, however often chance has brought it here; where that worker is busy, or
// nobody has the kind, it comes back ever more rarely. A task that a free worker has not taken in
// mostChances is one that it may not take, as by a limit.
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

// putOff is how long a stranger waits if it is not recalled: until its expiry or its deadline at the most,
// so that it ends when it should.
func putOff(t *store.Task, s Settings) time.Duration {
	delay := min(max(t.ClaimedAt.Sub(t.EnqueuedAt), ShortestPutOff), LongestPutOff)
	for _, end := range []time.Time{t.ExpiresAt, s.DeadlineOf(t)} {
		if !end.IsZero() {
			delay = min(delay, max(end.Sub(t.ClaimedAt), 0))
		}
	}
	return delay
}
