package query

import (
	"context"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/archive"
)

// KnowsQueue reports whether anything is known about a queue, including rules of the archive. Callers ask before a
// change, to catch misspelt names.
func KnowsQueue(ctx context.Context, client *tusk.Client, name string) (bool, error) {
	known, err := client.KnowsQueue(ctx, name)
	if err != nil || known {
		return known, err
	}
	return archive.RulesQueue(ctx, client.Store(), name)
}
