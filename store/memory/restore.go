package memory

import (
	"context"
	"fmt"
	"slices"

	"github.com/tuskqueue/tusk/store"
)

var _ store.Restorer = (*Store)(nil)

// Restore implements store.Restorer.
func (s *Store) Restore(
	ctx context.Context, note store.Record, tasks []store.Task,
) (version int64, exist []store.ID, err error) {
	if err := ctx.Err(); err != nil {
		return 0, nil, fmt.Errorf("restore: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.records[note.Kind][note.Name].Version != note.Version {
		return 0, nil, fmt.Errorf("restore: %w", store.ErrConflict)
	}
	now := clock()
	b := s.batch(now)
	if exist, err = b.Restore(tasks); err != nil {
		return 0, nil, fmt.Errorf("restore: %w", err)
	}
	s.apply(b)
	return s.writeRecord(note, now), exist, nil
}

// restore adds a task from an archive to the finished tasks, with its history. Historian does not report it.
func (s *Store) restore(t *task) {
	t.detail, t.group = *t.Detail, s.failures[failure{t.Queue, t.Kind, t.Fingerprint()}]
	t.detail.Needs, t.detail.Attempts, t.detail.Logs = nil, slices.Clone(t.detail.Attempts), slices.Clone(t.detail.Logs)
	t.detail.Output = slices.Clone(t.detail.Output)
	t.Detail, t.Restored, t.Needed = nil, false, false
	s.places++
	t.place = s.places
	s.tally(t, +1)
	at := verdict{t.Queue, t.State}
	s.finished[at] = append(s.finished[at], placed{t, t.place})
}
