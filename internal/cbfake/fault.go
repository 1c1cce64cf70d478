package cbfake

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/couchbase/gocbcore/v10/memd"
)

// Spoil says how a request is spoilt.
type Spoil int

// The ways in which a request is spoilt.
const (
	Sound       Spoil = iota
	LoseRequest       // the connection ends before it is served
	LoseAnswer        // it is served, and the connection ends before the answer
	Busy              // it is refused for now: the client tries again
	Elsewhere         // this node says that another one has the document
	SyncWrite         // a durable write of the document is under way
)

// Faults are what a test wants to go wrong.
type Faults struct {
	// Request is asked about each request for a document, before it is served. The key is the document's.
	Request func(code memd.CmdCode, key string) Spoil
	// Lag is how far the index is behind. A query that asks for certain writes, or for all, sees them.
	Lag time.Duration
	// Skew is by how much the clock of a node is ahead.
	Skew map[int]time.Duration
	// Remember is how long the cluster can still forget a write that was not durable.
	Remember time.Duration
	// Late is how long the query service takes to know of a new scope or collection.
	Late time.Duration
	// Stuck has indexes know of nothing more: a query that asks for certain writes, or for all, waits in vain.
	Stuck bool
	// NoScanWait has a scan that waits for its index wait until the end of its request, as if it had set no scan_wait.
	NoScanWait bool
	// OldUnlock has the unlocking of a document that is not locked fail for now, as before 7.6.
	OldUnlock bool
}

// Set puts faults in place of those before.
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

// SpoilSome spoils some requests of a hundred, each in one of the ways.
func SpoilSome(percent int) func(memd.CmdCode, string) Spoil {
	return func(memd.CmdCode, string) Spoil {
		if rand.IntN(100) >= percent {
			return Sound
		}
		return Spoil(1 + rand.IntN(int(SyncWrite)))
	}
}

// ForgetLocks takes all locks off, as a failover does: a lock is neither stored nor replicated.
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

// FailOver takes back what was written to a vbucket in the last time without durability, with all its locks, and gives
// its history another UUID. It returns how many documents changed.
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

// ForgetStatements has the cluster forget what clients have prepared, as a restart of its nodes does.
func (c *Cluster) ForgetStatements() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.prepared)
}

// JumpClock moves the clock by which CAS values are made. It never runs backwards: a CAS is larger than all before
// it.
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

// Vbuckets is how many vbuckets there are.
func (c *Cluster) Vbuckets() int { return vbuckets }
