package postgres

import (
	"context"
	"fmt"

	"github.com/tuskqueue/tusk/store"
)

// Edit implements store.Editor. Each task is edited under the lock of the place
// that holds it; the function edit tells how.
func (s *Store) Edit(ctx context.Context, e store.Edit) ([]store.Edited, error) {
	edited := make([]store.Edited, len(e.IDs))
	for i, id := range e.IDs {
		edited[i].ID = id
	}
	c := e.Change
	err := s.query(ctx, "edit", func(raw [][]byte) error {
		done := &edited[int32Of(raw[0])-1]
		done.Result, done.State = store.EditResult(stateOf(raw[1])), stateOf(raw[2])
		return nil
	}, uuidsOf(e.IDs), int16(c.Op), int32(c.Priority), c.Queue, timeOrNull(c.RunAt), c.Delay.Microseconds(), clean(c.Reason))
	if err != nil {
		return nil, fmt.Errorf("edit: %w", err)
	}
	return edited, nil
}
