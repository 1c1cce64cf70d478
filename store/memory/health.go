package memory

import (
	"context"
	"fmt"

	"github.com/tuskqueue/tusk/store"
)

var _ store.Examiner = (*Store)(nil)

// Examine implements store.Examiner.
func (s *Store) Examine(ctx context.Context) (store.Health, error) {
	if err := ctx.Err(); err != nil {
		return store.Health{}, fmt.Errorf("examine: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h := store.UnknownHealth()
	h.Now, h.Server = clock(), "memory"
	h.Leader.Term = s.leader.term
	h.Leader.Held = !s.leader.holder.IsZero() && h.Now.Before(s.leader.expires)
	return h, nil
}
