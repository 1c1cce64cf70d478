package ledgers

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

var _ store.Rebaser = (*Store)(nil)

// Rebase implements store.Rebaser. It rebases only ledgers that were restored from another server. The ledgers may be a
// copy even if the home ledger was not one of them, so the home ledger gives up the archive first.
func (s *Store) Rebase(ctx context.Context, dry bool) (tasks int64, err error) {
	moved, err := fromAll(ctx, s, ask, isMoved)
	if err != nil || !slices.Contains(moved, true) {
		return 0, err
	}
	if !dry {
		home, err := s.home(ctx)
		if err != nil {
			return 0, err
		}
		if _, err := ask(ctx, home, setArchiveAside); err != nil {
			return 0, fmt.Errorf("rebase: set the archive aside: %w", err)
		}
	}
	parts, err := fromAll(ctx, s, ask, func(ctx context.Context, e *postgres.Store) (int64, error) {
		if moved, err := isMoved(ctx, e); err != nil || !moved {
			return 0, err
		}
		return e.Rebase(ctx, dry)
	})
	for _, n := range parts {
		tasks += n
	}
	return tasks, err
}

func setArchiveAside(ctx context.Context, e *postgres.Store) (struct{}, error) {
	return struct{}{}, e.SetArchiveAside(ctx)
}

func isMoved(ctx context.Context, e *postgres.Store) (bool, error) {
	_, err := e.Check(ctx)
	if errors.Is(err, store.ErrMoved) {
		return true, nil
	}
	return false, err
}
