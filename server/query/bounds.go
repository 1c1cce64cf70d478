package query

import "github.com/tuskqueue/tusk"

// Bounds say what somebody may know of.
type Bounds interface {
	// Bounded reports whether there is anything beyond the bounds.
	Bounded() bool
	// Sees reports whether a task of the queue and the tenant is within the bounds.
	Sees(queue, tenant string) bool
	// Narrow returns the queues and tenants of a filter, none for all, that are within the bounds; ok is false if none
	// is. Bounds that name a beginning leave a filter that names nothing as it is.
	Narrow(queues, tenants []string) (q, t []string, ok bool)
}

// Everything are the bounds of somebody who may know of all tasks.
var Everything Bounds = everything{}

type everything struct{}

func (everything) Bounded() bool { return false }

func (everything) Sees(string, string) bool { return true }

func (everything) Narrow(queues, tenants []string) (q, t []string, ok bool) {
	return queues, tenants, true
}

// narrow keeps a filter from reading what is out of bounds: how many tasks there are, and where a page ends, tells of
// them as well as they themselves. It reports whether anything is left to be read.
func narrow(f *tusk.Filter, b Bounds) (ok bool) {
	f.Queues, f.Tenants, ok = b.Narrow(f.Queues, f.Tenants)
	return ok
}
