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

// Turns is tusk.Client.TurnCounts within a budget: it returns the groups that have waited longest in any queue, up to
// groups, and counts up to heads waiting tasks of each. With both set to one it is a cheap look at who has turns.
func Turns(ctx context.Context, client *tusk.Client, queue string, groups, heads int) ([]tusk.TurnCount, error) {
	turns, err := client.Store().Turns(ctx, 0, groups, heads)
	if err != nil {
		return nil, fmt.Errorf("turns: %w", err)
	}
	counts := make([]tusk.TurnCount, 0, len(turns))
	for _, t := range turns {
		if queue == "" || t.Queue == queue {
			counts = append(counts, tusk.TurnCount{Queue: t.Queue, Tenant: t.Tenant, Partition: t.Partition,
				Held: t.Held, Waiting: len(t.Waiting), More: len(t.Waiting) == heads})
		}
	}
	return counts, nil
}
