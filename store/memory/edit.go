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
	edited := make([]store.Edited, len(e.IDs))
	b := s.batch(clock())
	for i, id := range e.IDs {
		edited[i], _ = b.Edit(id, &e.Change)
	}
	s.apply(b)
	return edited, nil
}
