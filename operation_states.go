package tusk

import (
	"slices"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// StatesFor returns the states of the tasks that an operation changes: those of the filter's states, named, that
// allow the change. If named is empty, it returns all states that allow the change, but for a retry only those of
// failed tasks: retryable and discarded. Count tasks with these states before an operation starts, so that tasks
// it would leave unchanged are not counted. An empty result means that no task can be changed.
func StatesFor(op store.Op, named []State) []State {
	switch {
	case len(named) > 0:
	case op == store.Retry:
		named = []State{StateRetryable, StateDiscarded}
	default:
		named = store.States()
	}
	return slices.DeleteFunc(slices.Clone(named), func(s State) bool { return !rules.Allows(s, op) })
}
