package bell

import (
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// Names that are rung for the leader. No queue has such a name.
const (
	Turns = "\x02turns" // tasks wait for their turn
	Due   = "\x02due"   // tasks are due within store.Promptly
	Soon  = "\x02soon"  // tasks are due within store.Soon
)

// Any is rung if it is unknown who has work.
const Any = "\x02any"

// Leads reports whether a name is rung for the leader.
func Leads(name string) bool { return name == Turns || name == Due || name == Soon }

// For returns the name to ring for a task that has entered its state, at the engine's time now. It is empty if no
// hint is needed.
func For(r *rules.Row, now time.Time) string {
	switch {
	case r.State == store.Available:
		return r.Queue
	case r.InLine():
		return Turns
	case r.State == store.Scheduled || r.State == store.Retryable:
		return DueIn(r.RunAt.Sub(now))
	}
	return ""
}

// DueIn returns the name to ring for a task that is due after d, or an empty name if no hint is needed.
func DueIn(d time.Duration) string {
	switch {
	case d < store.Promptly:
		return Due
	case d < store.Soon:
		return Soon
	}
	return ""
}

// Hint returns the hint for the names that were rung: queues and the names above.
func Hint(names []string) (h store.Hint) {
	for _, name := range names {
		switch name {
		case Any:
			return store.Hint{}
		case Turns:
			h.Turns = true
		case Due:
			h.Due = true
		case Soon:
			h.Soon = true
		default:
			h.Queues = append(h.Queues, name)
		}
	}
	return h
}
