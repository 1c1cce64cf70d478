package ui

import (
	"context"
	"slices"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/access"
	"github.com/tuskqueue/tusk/server/query"
	"github.com/tuskqueue/tusk/store"
)

// Groups lists the latest error groups that an identity may see, up to the filter's limit, and reports whether there
// are more. The limit counts only visible groups. Only the latest MostGroups of all groups are considered.
func Groups(
	ctx context.Context, client *tusk.Client, who access.Identity, f store.ErrorFilter,
) (groups []store.ErrorGroup, more bool, err error) {
	limit := f.Limit
	if len(who.Queues) > 0 {
		f.Limit = query.MostGroups
	}
	if groups, more, err = query.LatestGroups(ctx, client, f); err != nil {
		return nil, false, err
	}
	groups = slices.DeleteFunc(groups, func(g store.ErrorGroup) bool { return !who.SeesQueue(g.Queue) })
	return groups[:min(len(groups), limit)], more || len(groups) > limit, nil
}
