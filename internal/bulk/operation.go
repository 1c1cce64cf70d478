// Package bulk changes all tasks that match a filter, page by page. Such a change is an operation:
// a record with a cursor. It survives its process, and any other process can continue it.
//
// It may use a store's List and Edit, and its records. Operations come from package tusk. Package
// tend carries them out in the leader's process, and package tusk in any process that calls
// CarryOperation.
package bulk

import (
	"slices"
	"strings"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// RecordKind is the kind of record that operations are stored as.
const RecordKind = "operation"

// State is the state of an operation.
type State string

// The states.
const (
	Running   State = "running" // in progress, or waiting for a process to continue it
	Done      State = "done"
	Cancelled State = "cancelled"
)

// Operation is one change to all tasks that match a filter and existed when it began. Each task is
// examined once, the newest first. If a process dies, the page that it was working on is examined
// again.
type Operation struct {
	ID     store.ID     `json:"id"`
	State  State        `json:"state"`
	Change store.Change `json:"change"`
	Filter store.Filter `json:"filter"`

	// Owner identifies who began it. By is that person's or token's name and Via the way used, both
	// for people to read.
	Owner string `json:"owner,omitempty"`
	By    string `json:"by,omitempty"`
	Via   string `json:"via,omitempty"`
	// Queues and Tenants restrict the operation, whatever the filter says. Each entry is a name, or
	// a prefix that ends in *. Empty means all.
	Queues  []string `json:"queues,omitempty"`
	Tenants []string `json:"tenants,omitempty"`

	// PerSecond is the most tasks that it tries to change in a second. 0 means no limit.
	PerSecond int   `json:"per_second,omitempty"`
	Limit     int64 `json:"limit,omitempty"`    // maximum number of tasks to examine; 0 means no limit
	Expected  int64 `json:"expected,omitempty"` // estimated number of tasks to examine; 0 if unknown

	Seen      int64 `json:"seen"`      // tasks examined
	Changed   int64 `json:"changed"`   // how many of those were changed
	Requested int64 `json:"requested"` // running tasks that were told to stop
	Refused   int64 `json:"refused"`   // unchanged: gone, or in a state that does not allow the change
	KeyTaken  int64 `json:"key_taken"` // unchanged: another unfinished task has the key

	Left []store.Edited `json:"left,omitempty"` // the first unchanged tasks, and why

	StartedAt  time.Time `json:"started_at,omitzero"`  // by the engine's clock
	FinishedAt time.Time `json:"finished_at,omitzero"` // likewise

	CancelRequested bool     `json:"cancel_requested,omitempty"`
	Error           string   `json:"error,omitempty"` // of the latest page, if that failed
	Cursor          store.ID `json:"cursor"`          // the oldest task examined; the search goes from new to old
	Holder          store.ID `json:"holder"`          // the process that carries it out; zero if none yet
}

// Ended reports whether the operation is over.
func (o *Operation) Ended() bool { return o.State != Running }

// sees reports whether a task is within the operation's Queues and Tenants.
func (o *Operation) sees(t *store.Task) bool {
	return Within(o.Queues, t.Queue) && Within(o.Tenants, t.Tenant)
}

// Within reports whether patterns allow a name. Each pattern is a name, or a prefix that ends in *.
// Empty patterns allow all names.
func Within(patterns []string, name string) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p string) bool {
		start, open := strings.CutSuffix(p, "*")
		return p == name || open && strings.HasPrefix(name, start)
	})
}

const (
	mostOnPage  = 1000
	firstOnPage = 100
	leastOnPage = 10
	// instant is how closely the clocks of engines and clients agree. Tasks enqueued up to this
	// long after the start of the operation are included.
	instant = time.Millisecond
)

// page returns the filter for the operation's next page of at most the given number of tasks.
func (o *Operation) page(most int) store.Filter {
	f := o.Filter
	if until := o.StartedAt.Add(instant); f.Until.IsZero() || until.Before(f.Until) {
		f.Until = until
	}
	f.Before, f.Limit, f.Detail, f.NoArgs = o.Cursor, most, false, true
	if o.PerSecond > 0 {
		f.Limit = min(f.Limit, o.PerSecond)
	}
	if o.Limit > 0 {
		f.Limit = int(min(int64(f.Limit), o.Limit-o.Seen))
	}
	return f
}

// mostLeft is how many unchanged tasks are listed.
const mostLeft = 20

// count adds the results of a page.
func (o *Operation) count(edited []store.Edited) {
	for _, e := range edited {
		switch e.Result {
		case store.Changed:
			o.Changed++
			continue
		case store.Requested:
			o.Requested++
			continue
		case store.KeyTaken:
			o.KeyTaken++
		default:
			o.Refused++
		}
		if len(o.Left) < mostLeft {
			o.Left = append(o.Left, e)
		}
	}
	o.Seen += int64(len(edited))
}

// countUntil adds the results that precede the first task that failed. The next page begins there.
func (o *Operation) countUntil(failed []store.ID, tasks []store.Task, edited []store.Edited) {
	for i := range tasks {
		if slices.Contains(failed, tasks[i].ID) {
			return
		}
		if len(edited) > 0 && edited[0].ID == tasks[i].ID {
			o.count(edited[:1])
			edited = edited[1:]
		}
		o.Cursor = tasks[i].ID
	}
}
