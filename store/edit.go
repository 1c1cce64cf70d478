package store

import (
	"fmt"
	"slices"
	"time"
)

// Edit changes tasks.
type Edit struct {
	IDs    []ID // at most MaxPage
	Change Change
}

// Change is one change of a task. The states that allow each are the same in every
// engine:
//
//	Cancel        not finished; a running task is Requested to stop
//	Retry         scheduled, retryable: available now; finished: again from the start, with no attempts counted,
//	              pending if a task that it needs has not ended as required
//	Delete        anything but running
//	Reprioritize  scheduled, retryable, available, and pending for its turn
//	Move          scheduled, retryable, available; a task that runs in turns waits for one of its new queue
//	Reschedule    scheduled, retryable, available
type Change struct {
	Op       Op
	Priority int16         // Reprioritize
	Queue    string        // Move
	RunAt    time.Time     // Retry, Reschedule; zero means now
	Delay    time.Duration // the same, from the engine's now
	Reason   string        // Cancel
}

// Op is the operation of a change.
type Op int8

const (
	Cancel Op = iota + 1
	Retry
	Delete
	Reprioritize
	Move
	Reschedule
)

var opNames = [...]string{"", "cancel", "retry", "delete", "reprioritize", "move", "reschedule"}

func (o Op) String() string { return opNames[o] }

// MarshalText implements encoding.TextMarshaler.
func (o Op) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (o *Op) UnmarshalText(text []byte) error {
	i := slices.Index(opNames[1:], string(text))
	if i < 0 {
		return fmt.Errorf("unknown change %q: want one of %v", text, opNames[1:])
	}
	*o = Op(i + 1)
	return nil
}

// Edited is the result of an edit for one task.
type Edited struct {
	ID     ID
	Result EditResult
	State  State // after the edit; if Refused, the state that prevented it; 0 if Missing
}

// EditResult is one of the five results of an edit.
type EditResult int8

const (
	Changed   EditResult = iota + 1
	Requested            // running: its worker will be told
	Refused              // its state does not allow it
	Missing              // no such task
	KeyTaken             // another unfinished task holds its key
)

func (r EditResult) String() string {
	return [...]string{"", "changed", "requested", "refused", "missing", "key taken"}[r]
}
