package couchbase

import (
	"context"
	"errors"
	"fmt"

	"github.com/couchbase/gocb/v2"

	"github.com/tuskqueue/tusk/store"
)

// copies is how many replicas a bucket should have, and how many of them have a node for every vbucket.
type copies struct{ wanted, placed int }

// copiesOf reads the client's configuration. It returns zeros if that is unknown.
func copiesOf(b *gocb.Bucket) (c copies) {
	router, err := b.Internal().IORouter()
	if err != nil {
		return c
	}
	config, err := router.ConfigSnapshot()
	if err != nil {
		return c
	}
	vbuckets, err := config.NumVbuckets()
	wanted, wrong := config.NumReplicas()
	if err != nil || wrong != nil {
		return c
	}
	c = copies{wanted, wanted}
	for vb := range vbuckets {
		there := 0
		for i := range c.wanted {
			if node, err := config.VbucketToServer(uint16(vb), uint32(i+1)); err == nil && node >= 0 {
				there++
			}
		}
		c.placed = min(c.placed, there)
	}
	return c
}

// mostReplicas is how many replicas a bucket may have for durable writes.
const mostReplicas = 2

// majority reports whether the server accepts durable writes: most of the copies, including the active one, have a
// node. docs.couchbase.com: "Durability", majority and replica-count restriction.
func (c copies) majority() bool { return c.wanted <= mostReplicas && 1+c.placed > (1+c.wanted)/2 }

// remedy says what to change so that durable writes are possible.
const remedy = "give the bucket one or two replicas and the cluster a data node for each besides the first, or set " +
	"its replicas to 0, and rebalance; or write durability=none into the database URL, if a node that fails may lose " +
	"tasks"

// advised classifies errors that are caused by the setup or by the size of a document, and says what to do.
func advised(err error) error {
	switch {
	case errors.Is(err, gocb.ErrDurabilityImpossible): // perhaps only for some documents, until a rebalance
		return fmt.Errorf("%w: the bucket has too few data nodes for its replicas, or more than %d replicas, so the "+
			"server refuses durable writes: %s: %w", store.ErrUnavailable, mostReplicas, remedy, err)
	case errors.Is(err, gocb.ErrValueTooLarge):
		return fmt.Errorf("%w: a task, with its history, output and logs, is one document, which has 20 MiB at most: "+
			"bring less: %w", store.ErrUnstorable, err)
	case isOf(err, gocb.ErrPlanningFailure, gocb.ErrIndexNotFound):
		return fmt.Errorf("%w: no index can answer a query: 'tusk doctor' names those that are missing, and says how to "+
			"create them: %w", store.ErrUnavailable, err)
	case errors.Is(err, gocb.ErrDurabilityLevelNotAvailable):
		return fmt.Errorf("the bucket does not have the durability that is asked for: an ephemeral one has majority "+
			"at most, so write durability=majority into the database URL: %w", err)
	}
	return err
}

// checkDurability finds out whether writes are durable, and whether the server accepts that.
func (s *Store) checkDurability(context.Context) (string, error) {
	has := copiesOf(s.kv)
	of := fmt.Sprintf("the bucket has %d replicas, and data nodes for %d of them", has.wanted, has.placed)
	switch level := s.durability; {
	case level > gocb.DurabilityLevelNone && !has.majority():
		return fmt.Sprintf("%s, so the server refuses durable writes, and with them every enqueue and every outcome: "+
			"%s", of, remedy), nil
	case level > gocb.DurabilityLevelNone:
		return "", nil
	case level == gocb.DurabilityLevelUnknown && !has.majority():
		return fmt.Sprintf("%s, so the server would refuse durable writes, and writes are acknowledged by one node, "+
			"in memory: a node that fails may lose tasks; %s", of, remedy), nil
	}
	return "writes are acknowledged by one node, in memory: a node that fails may lose tasks; with replicas, add " +
		"durability=majority or durability=persistToMajority to the database URL", nil
}
