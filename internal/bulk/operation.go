// Package bulk carries on changes to all tasks that match a filter, page by page.
// Each is an operation, which is a record with a cursor: it survives its process,
// and any other goes on with it.
//
// It may touch a store's List and Edit, and its records. Operations come in from
// package tusk; package tend carries them on in the process that leads, package tusk
// in any other that asks for it.
package bulk

import (
	"slices"
	"strings"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// RecordKind is the kind of record that operations are stored as.
const RecordKind = "operation"

// State is how far an operation has come.
type State string

// The states.
const (
	Running   State = "running" // it goes on, or waits for a process to go on with it
	Done      State = "done"
	Cancelled State = "cancelled"
)

// Operation is one change to all tasks that match a filter and existed when it
// began. Each of them is looked at once, the newest first; the one page that a
// process was at when it died is looked at again.
type Operation struct {
	ID     store.ID     `json:"id"`
	State  State        `json:"state"`
	Change store.Change `json:"change"`
	Filter store.Filter `json:"filter"`

	// Owner identifies who began it; By is that one's name and Via the way, for people.
	Owner string `json:"owner,omitempty"`
	By    string `json:"by,omitempty"`
	Via   string `json:"via,omitempty"`
	// Queues and Tenants bound it, whatever the filter says: names, or beginnings
	// that end in *; none: all.
	Queues  []string `json:"queues,omitempty"`
	Tenants []string `json:"tenants,omitempty"`

	// the most tasks that it tries to change in a second; 0: as many as can be
	PerSecond int   `json:"per_second,omitempty"`
	Limit     int64 `json:"limit,omitempty"`    // of tasks to look at; 0: none
	Expected  int64 `json:"expected,omitempty"` // how many it was thought to look at; 0: not known

	Seen      int64 `json:"seen"`      // tasks looked at
	Changed   int64 `json:"changed"`   // of those
	Requested int64 `json:"requested"` // running, and told to stop
	Refused   int64 `json:"refused"`   // left alone: its state did not allow the change, or it was gone
	KeyTaken  int64 `json:"key_taken"` // left alone: another unfinished task has its key

	Left []store.Edited `json:"left,omitempty"` // the first that were left alone, and why

	StartedAt  time.Time `json:"started_at,omitzero"`  // by the engine's clock
	FinishedAt time.Time `json:"finished_at,omitzero"` // the same

	CancelRequested bool     `json:"cancel_requested,omitempty"`
	Error           string   `json:"error,omitempty"` // of the latest page, when that failed
	Cursor          store.ID `json:"cursor"`          // tasks from here on were looked at
	Holder          store.ID `json:"holder"`          // who carries it on; zero: nobody yet
}

// Ended reports whether the operation is over.
func (o *Operation) Ended() bool { return o.State != Running }

// sees reports whether a task is within the operation's bounds.
func (o *Operation) sees(t *store.Task) bool {
	return Within(o.Queues, t.Queue) && Within(o.Tenants, t.Tenant)
}

// Within reports whether a name is one of those that bound something: names, or beginnings that end
// in *; none: all names are.
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
	// instant is how exactly engines and clients agree on time: a task that was
	// enqueued within it before the operation began is meant.
	instant = time.Millisecond
)

// page is the filter of the operation's next page, of at most so many tasks.
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

// mostLeft is how many of the tasks that were left alone are named.
const mostLeft = 20

// count adds what became of the tasks of a page.
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
