package query

import (
	"context"
	"fmt"

	"github.com/tuskqueue/tusk"
)

// Limits of a look at turns, because somebody waits for it: the number of groups, and of waiting tasks in each, that
// it reads.
const (
	TurnGroups = 1000
	TurnHeads  = 50
)

// Turns is tusk.Client.TurnCounts within a budget: of the groups that have waited longest in any queue, up to groups,
// it returns those of a queue (all if queue is empty), and counts up to heads waiting tasks of each. It reports whether
// more groups may wait, so that some of the queue may be missing. With both set to one it is a cheap look at who has
// turns.
func Turns(
	ctx context.Context, client *tusk.Client, queue string, groups, heads int,
) (counts []tusk.TurnCount, more bool, err error) {
	turns, err := client.Store().Turns(ctx, 0, groups, heads)
	if err != nil {
		return nil, false, fmt.Errorf("turns: %w", err)
	}
	waiting := 0
	for _, t := range turns {
		if len(t.Waiting) > 0 {
			waiting++
		}
		if queue == "" || t.Queue == queue {
			counts = append(counts, tusk.TurnCount{Queue: t.Queue, Tenant: t.Tenant, Partition: t.Partition,
				Held: t.Held, Waiting: len(t.Waiting), More: len(t.Waiting) == heads})
		}
	}
	return counts, waiting >= groups, nil
}
