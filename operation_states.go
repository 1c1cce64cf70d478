package tusk

import (
	"slices"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// StatesFor returns the states of the tasks that an operation changes: of the states that
// its filter names, those that allow the change. A filter that names none means all of
// these, but a retry then means failed tasks only: retryable and discarded ones. Tasks are
// counted with these states before an operation starts, so that those it would leave alone
// are not counted. An empty answer means that no task can be changed.
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
