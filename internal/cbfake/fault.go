package cbfake

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/couchbase/gocbcore/v10/memd"
)

// Spoil is a way in which a request fails.
type Spoil int

// The ways in which a request fails.
const (
	Sound       Spoil = iota
	LoseRequest       // the connection ends before the request is served
	LoseAnswer        // the request is served, but the connection ends before the answer
	Busy              // the request is refused for now, and the client tries again
	Elsewhere         // the node says that another node has the document
	SyncWrite         // a durable write of the document is in progress
)

// Faults are what should go wrong in a test.
type Faults struct {
	// Request is called for each document request before it is served, with the key of the
	// document.
	Request func(code memd.CmdCode, key string) Spoil
	// Lag is how far the index is behind. Queries that ask for all writes still see them, at once.
	Lag time.Duration
	// Skew is how far the clocks of nodes are ahead.
	Skew map[int]time.Duration
	// Remember is how long the cluster can forget a write that was not durable.
	Remember time.Duration
	// Late is how long it takes until the query service knows a new scope or collection.
	Late time.Duration
	// Stuck stops the update of indexes. A query that asks for all writes then times out.
	Stuck bool
}

// Set replaces all faults.
func (c *Cluster) Set(f Faults) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults = f
}

func (c *Cluster) spoil(p *memd.Packet) Spoil {
	c.mu.Lock()
	ask := c.faults.Request
	c.mu.Unlock()
	if ask == nil {
		return Sound
	}
	for _, code := range documentRequests {
		if code == p.Command {
			return ask(p.Command, string(p.Key))
		}
	}
	return Sound
}

// SpoilSome makes the given percentage of requests fail, each in a random way.
func SpoilSome(percent int) func(memd.CmdCode, string) Spoil {
	return func(memd.CmdCode, string) Spoil {
		if rand.IntN(100) >= percent {
			return Sound
		}
		return Spoil(1 + rand.IntN(int(SyncWrite)))
	}
}

// ForgetLocks removes all locks, as a failover does: a lock is neither stored nor replicated.
// docs.couchbase.com: "Concurrent Document Mutations", pessimistic locking.
func (c *Cluster) ForgetLocks() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, docs := range c.docs {
		for _, d := range docs {
			d.lockedUntil = time.Time{}
		}
	}
}

// FailOver undoes the writes without durability that a vbucket got in the last time, removes all
// its locks, and gives its history a new UUID. It returns the number of changed documents.
// docs.couchbase.com: "Durability", "Failover"; github.com/couchbase/kv_engine: docs/Document.md,
// VBucket UUID.
func (c *Cluster) FailOver(vbucket int, last time.Duration) (changed int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failOver(vbucket, last)
}

func (c *Cluster) failOver(vbucket int, last time.Duration) (changed int) {
	c.uuid[vbucket] = newUUID()
	since := time.Now().Add(-min(last, c.faults.Remember))
	for id, docs := range c.docs {
		for key, d := range docs {
			if vbucketOf(key) != vbucket {
				continue
			}
			d.lockedUntil = time.Time{}
			was := len(d.versions)
			for n := was; n > 1 && !d.now().durable && d.now().at.After(since); n-- {
				d.versions = d.versions[:n-1]
			}
			if len(d.versions) < was {
				changed++
				c.index(id, key, d)
				_ = c.journal.note(c.nameOf(id), key, d.now())
			}
		}
	}
	return changed
}

// ForgetStatements makes the cluster forget prepared statements, as a restart of its nodes does.
func (c *Cluster) ForgetStatements() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.prepared)
}

// JumpClock moves the clock that generates CAS values and lets documents expire. The values never
// go back: a CAS is larger than all before it.
func (c *Cluster) JumpClock(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += by
}

// DropIndex drops an index of a scope.
func (c *Cluster) DropIndex(scope, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.indexes[scope+"."+name]
	delete(c.indexes, scope+"."+name)
	for id, all := range c.of {
		c.of[id] = slices.DeleteFunc(all, func(other *index) bool { return other == x })
	}
}

// HangUp ends all connections.
func (c *Cluster) HangUp() { c.hangUp() }

// Vbuckets returns the number of vbuckets.
func (c *Cluster) Vbuckets() int { return vbuckets }
