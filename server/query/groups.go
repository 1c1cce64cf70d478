package query

import (
	"context"
	"fmt"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

// MostGroups is the largest number of error groups that are listed, the latest ones, and the number of groups in
// which a fingerprint is searched.
const MostGroups = 10000

// LatestGroups lists the latest groups that match a filter with a limit, and reports whether there are more.
func LatestGroups(ctx context.Context, client *tusk.Client, f store.ErrorFilter) ([]store.ErrorGroup, bool, error) {
	limit := f.Limit
	f.Limit++
	groups, err := client.Errors(ctx, f)
	return groups[:min(len(groups), limit)], len(groups) > limit, err
}

// Groups returns the error groups with a fingerprint, one for each queue where it was seen. The error is
// tusk.ErrNotFound if there are none.
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

// HasError fails unless an error within bounds has the fingerprint.
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
