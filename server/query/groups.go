package query

import (
	"context"
	"fmt"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

// mostGroups is among how many groups of errors, the latest ones, a fingerprint is looked for.
const mostGroups = 10000

// Groups are the groups of errors with a fingerprint, one for each queue it was seen in. None is tusk.ErrNotFound.
func Groups(ctx context.Context, client *tusk.Client, fingerprint string) ([]store.ErrorGroup, error) {
	all, err := client.Errors(ctx, store.ErrorFilter{Limit: mostGroups})
	if err != nil {
		return nil, err
	}
	var found []store.ErrorGroup
	for _, g := range all {
		if g.Fingerprint == fingerprint {
			found = append(found, g)
		}
	}
	if len(found) == 0 {
		return nil, noError(fingerprint)
	}
	return found, nil
}

// HasError refuses a fingerprint that no error has. Whoever has bounds, which sees tells, learns of no
// errors beyond them; nil: there are none.
func HasError(
	ctx context.Context, client *tusk.Client, sees func(queue, tenant string) bool, fingerprint string,
) error {
	if sees == nil {
		_, err := Groups(ctx, client, fingerprint)
		return err
	}
	page, more, err := Visible(ctx, client, sees, tusk.Filter{Fingerprint: fingerprint, Limit: 1})
	if err == nil && len(page) == 0 && more.IsZero() {
		err = noError(fingerprint)
	}
	return err
}

func noError(fingerprint string) error {
	return fmt.Errorf("no error has the fingerprint %q: %w", fingerprint, tusk.ErrNotFound)
}
