package query

import (
	"context"
	"fmt"

	"github.com/tuskqueue/tusk"
)

// A look at turns is for people who wait: so many groups, and so many waiting tasks
// of each, are read at most.
const (
	TurnGroups = 1000
	TurnHeads  = 50
)

// Turns is tusk.Client.TurnCounts within a budget: of those that wait in any queue,
// the TurnGroups that have waited longest are told, and TurnHeads tasks of each are
// counted. With heads and groups of one it is a cheap look at who has turns.
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
