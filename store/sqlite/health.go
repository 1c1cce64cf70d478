package sqlite

import (
	"context"
	"fmt"

	"github.com/tuskqueue/tusk/internal/disk"
	"github.com/tuskqueue/tusk/store"
)

var _ store.Examiner = (*Store)(nil)

// Examine implements store.Examiner. SQLite does not tell who has been reading for how long.
func (s *Store) Examine(ctx context.Context) (store.Health, error) {
	h := store.UnknownHealth()
	err := s.read(ctx, func(ctx context.Context, c session) error {
		now := s.clock.now()
		r, err := one(ctx, c, "leader.find")
		if err != nil {
			return err
		}
		h.Now, h.Leader.Term, h.Leader.Held = at(now), r.int(1), !r.id(0).IsZero() && now < r.int(2)
		if r, err = one(ctx, c, "health"); err != nil {
			return err
		}
		h.Server, h.Bytes = "SQLite "+r.text(0), r.int(1)
		return nil
	})
	if err != nil {
		return h, fmt.Errorf("examine: %w", err)
	}
	if space, ok := disk.Of(s.path); ok {
		h.DiskFree, h.DiskSize = space.Free, space.Size
	}
	return h, nil
}
