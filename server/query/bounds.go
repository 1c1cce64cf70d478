package query

import "github.com/tuskqueue/tusk"

// Bounds say what somebody may see.
type Bounds interface {
	// Bounded reports whether anything is out of bounds.
	Bounded() bool
	// Sees reports whether a task of the queue and the tenant is within the bounds.
	Sees(queue, tenant string) bool
	// Narrow returns the queues and tenants of a filter that are within the bounds; empty means all. ok is false if
	// none are. If the bounds contain prefixes, a filter that names nothing stays as it is.
	Narrow(queues, tenants []string) (q, t []string, ok bool)
}

// Everything is the bounds of somebody who may see all tasks.
var Everything Bounds = everything{}

type everything struct{}

func (everything) Bounded() bool { return false }

func (everything) Sees(string, string) bool { return true }

func (everything) Narrow(queues, tenants []string) (q, t []string, ok bool) {
	return queues, tenants, true
}

// narrow keeps a filter from reading what is out of bounds, because the number of tasks and the end of a page reveal
// as much as the tasks. It reports whether anything is left to read.
func narrow(f *tusk.Filter, b Bounds) (ok bool) {
	f.Queues, f.Tenants, ok = b.Narrow(f.Queues, f.Tenants)
	return ok
}
