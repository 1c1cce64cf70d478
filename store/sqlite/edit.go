package sqlite

import (
	"context"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// Edit implements store.Editor.
func (s *Store) Edit(ctx context.Context, e store.Edit) (edited []store.Edited, err error) {
	if len(e.IDs) == 0 {
		return nil, nil
	}
	err = s.write(ctx, true, func(w *work) error {
		return w.decide(func(b *rules.Batch) error {
			edited, err = b.Edit(e.IDs, &e.Change)
			return err
		})
	})
	return answer(edited, "edit", err)
}
