package cbfake

import (
	"math/rand/v2"
	"time"
)

// newUUID returns an id for the history of a vbucket. A history starts when the vbucket is made,
// after an unclean restart, or after a failover.
func newUUID() uint64 { return 1 + rand.Uint64()>>16 }

// nodesOf returns the nodes of a vbucket: the one that serves it, and one for each replica, or -1
// if no node is left for it.
func (c *Cluster) nodesOf(vb int) []int {
	all := []int{c.owner[vb]}
	for i := 1; len(all) <= c.replicas; i++ {
		n := (c.owner[vb] + i) % len(c.nodes)
		switch {
		case i >= len(c.nodes):
			all = append(all, -1)
		case !c.out[n]:
			all = append(all, n)
		}
	}
	return all
}

// durable reports whether a durable write is possible: most of the copies have a node, and there
// are at most two replicas. docs.couchbase.com: "Durability", majority and replica-count
// restriction.
func (c *Cluster) durable(vb int) bool {
	there := 0
	for _, n := range c.nodesOf(vb) {
		if n >= 0 {
			there++
		}
	}
	return c.replicas <= 2 && there > (c.replicas+1)/2
}

// FailOverNode fails a node over. Other nodes then serve its vbuckets, which have one node less
// until a rebalance. docs.couchbase.com: "Failover".
func (c *Cluster) FailOverNode(number int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out[number] = true
	for vb, owner := range c.owner {
		for ; c.out[owner]; owner = (owner + 1) % len(c.nodes) {
		}
		if owner != c.owner[vb] {
			c.owner[vb] = owner
			c.failOver(vb, time.Duration(0))
		}
	}
	c.revision++
}

// Rebalance sets the number of replicas of the bucket. They are on the nodes that were not failed
// over.
func (c *Cluster) Rebalance(replicas int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.replicas = replicas
	c.revision++
}
