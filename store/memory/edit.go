package memory

import (
	"context"
	"fmt"

	"github.com/tuskqueue/tusk/store"
)

// Edit implements store.Editor.
func (s *Store) Edit(ctx context.Context, e store.Edit) ([]store.Edited, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("edit: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.batch(clock())
	edited, _ := b.Edit(e.IDs, &e.Change)
	s.apply(b)
	return edited, nil
}
