package tusk

import (
	"slices"

	"github.com/tuskqueue/tusk/store"
)

// StatesFor returns the states that an operation is about: those that its filter names
// and that allow the change, or, when it names none, those that the change is meant for.
// What counts tasks before an operation counts with them, and so does not count those
// that would be left alone. None is empty: no task can be changed so.
func StatesFor(op store.Op, named []State) []State {
	if len(named) == 0 {
		return meantFor[op]
	}
	return slices.DeleteFunc(slices.Clone(named), func(s State) bool { return !slices.Contains(allowedFor[op], s) })
}

var (
	notStarted = []State{StateScheduled, StatePending, StateAvailable, StateRetryable}
	finished   = []State{StateCompleted, StateCancelled, StateDiscarded}

	meantFor = map[store.Op][]State{
		store.Cancel:       append(slices.Clone(notStarted), StateRunning),
		store.Retry:        {StateRetryable, StateDiscarded},
		store.Delete:       append(slices.Clone(notStarted), finished...),
		store.Reprioritize: notStarted,
		store.Move:         notStarted,
		store.Reschedule:   {StateScheduled, StateRetryable, StateAvailable},
	}
	allowedFor = map[store.Op][]State{
		store.Cancel:       meantFor[store.Cancel],
		store.Retry:        append([]State{StateScheduled, StateRetryable}, finished...),
		store.Delete:       meantFor[store.Delete],
		store.Reprioritize: notStarted,
		store.Move:         notStarted,
		store.Reschedule:   meantFor[store.Reschedule],
	}
)
