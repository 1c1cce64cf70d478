package cbfake

import (
	"math/rand/v2"
	"time"
)

// newUUID names the history of a vbucket: from its beginning, from an unclean restart, or from a failover on.
func newUUID() uint64 { return 1 + rand.Uint64()>>16 }

// nodesOf are the nodes of a vbucket: that which serves it, and one for each replica. -1: there is none for it.
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

// durable reports whether a durable write can be fulfilled: where most of the copies have a node, and there are two
// replicas at most. docs.couchbase.com: "Durability", majority and replica-count restriction.
func (c *Cluster) durable(vb int) bool {
	there := 0
	for _, n := range c.nodesOf(vb) {
		if n >= 0 {
			there++
		}
	}
	return c.replicas <= 2 && there > (c.replicas+1)/2
}

// FailOverNode fails a node over: others serve its vbuckets, which have a node less until a rebalance.
// docs.couchbase.com: "Failover".
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

// Rebalance gives the bucket so many replicas, on the nodes that were not failed over.
func (c *Cluster) Rebalance(replicas int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.replicas = replicas
	c.revision++
}
