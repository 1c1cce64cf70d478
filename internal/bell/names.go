package bell

import (
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// Names that are rung for whoever leads. No queue has such a name.
const (
	Turns = "\x02turns" // tasks wait for their turn
	Due   = "\x02due"   // tasks are due within store.Promptly
	Soon  = "\x02soon"  // tasks are due within store.Soon
)

// Leads reports whether a name is rung for whoever leads.
func Leads(name string) bool { return name == Turns || name == Due || name == Soon }

// For is the name to ring for a task that has come where it is, at a time of the engine's; empty: nobody has to
// be told.
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

// DueIn is the name to ring for a task that is due after a time; empty: nobody has to be told.
func DueIn(d time.Duration) string {
	switch {
	case d < store.Promptly:
		return Due
	case d < store.Soon:
		return Soon
	}
	return ""
}

// Hint is what was rung for: queues, and the names above.
func Hint(names []string) (h store.Hint) {
	for _, name := range names {
		switch name {
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
