package query

import (
	"context"
	"fmt"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

// MostGroups is how many groups of errors are listed at most, the latest ones, and among how many a fingerprint is
// looked for.
const MostGroups = 10000

// LatestGroups lists the latest groups that a filter with a limit finds, and says whether there are more.
func LatestGroups(ctx context.Context, client *tusk.Client, f store.ErrorFilter) ([]store.ErrorGroup, bool, error) {
	limit := f.Limit
	f.Limit++
	groups, err := client.Errors(ctx, f)
	return groups[:min(len(groups), limit)], len(groups) > limit, err
}

// Groups are the groups of errors with a fingerprint, one for each queue it was seen in. None is tusk.ErrNotFound.
func Groups(ctx context.Context, client *tusk.Client, fingerprint string) ([]store.ErrorGroup, error) {
	all, more, err := LatestGroups(ctx, client, store.ErrorFilter{Limit: MostGroups})
	if err != nil {
		return nil, err
	}
	var found []store.ErrorGroup
	for _, g := range all {
		if g.Fingerprint == fingerprint {
			found = append(found, g)
		}
	}
	switch {
	case len(found) > 0:
		return found, nil
	case more:
		return nil, fmt.Errorf("none of the latest %d groups of errors has the fingerprint %q, and older ones are not "+
			"looked at: %w", MostGroups, fingerprint, tusk.ErrNotFound)
	}
	return nil, noError(fingerprint)
}

// HasError refuses a fingerprint that no error within bounds has.
func HasError(ctx context.Context, client *tusk.Client, within Bounds, fingerprint string) error {
	if !within.Bounded() {
		_, err := Groups(ctx, client, fingerprint)
		return err
	}
	page, more, err := Visible(ctx, client, within, tusk.Filter{Fingerprint: fingerprint, Limit: 1})
	if err == nil && len(page) == 0 && more.IsZero() {
		err = noError(fingerprint)
	}
	return err
}

func noError(fingerprint string) error {
	return fmt.Errorf("no error has the fingerprint %q: %w", fingerprint, tusk.ErrNotFound)
}
