package memory

import (
	"context"
	"fmt"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Enqueue implements store.Enqueuer.
func (s *Store) Enqueue(ctx context.Context, tasks []store.NewTask) ([]store.Enqueued, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("enqueue: %w: %w", store.ErrNotCommitted, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.enqueue(tasks, clock()), nil
}

func (s *Store) enqueue(tasks []store.NewTask, now time.Time) []store.Enqueued {
	b := s.batch(now)
	results, _ := b.Enqueue(tasks)
	s.apply(b)
	return results
}
