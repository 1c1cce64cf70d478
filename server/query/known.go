package query

import (
	"context"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/archive"
)

// KnowsQueue reports whether there is anything of a queue, rules of the archive included. Whoever asks
// before a change finds misspelt names.
func KnowsQueue(ctx context.Context, client *tusk.Client, name string) (bool, error) {
	known, err := client.KnowsQueue(ctx, name)
	if err != nil || known {
		return known, err
	}
	return archive.RulesQueue(ctx, client.Store(), name)
}
