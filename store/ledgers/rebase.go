package ledgers

import (
	"context"
	"errors"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

var _ store.Rebaser = (*Store)(nil)

// Rebase implements store.Rebaser. It rebases only ledgers that were restored from another server.
func (s *Store) Rebase(ctx context.Context, dry bool) (tasks int64, err error) {
	parts, err := fromAll(ctx, s, ask, func(ctx context.Context, e *postgres.Store) (int64, error) {
		if _, err := e.Check(ctx); err == nil || !errors.Is(err, store.ErrMoved) {
			return 0, err
		}
		return e.Rebase(ctx, dry)
	})
	for _, n := range parts {
		tasks += n
	}
	return tasks, err
}
