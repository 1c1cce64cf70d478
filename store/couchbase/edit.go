package couchbase

import (
	"context"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// Edit implements store.Editor.
func (s *Store) Edit(ctx context.Context, e store.Edit) (_ []store.Edited, err error) {
	defer says(&err, "edit")
	edited := make([]store.Edited, len(e.IDs))
	works := make([]*work, len(e.IDs))
	c := e.Change
	c.RunAt = trim(c.RunAt)
	for i, id := range e.IDs {
		works[i] = &work{}
		err := s.do(ctx, works[i], func(b *rules.Batch) error {
			did, err := b.Edit([]store.ID{id}, &c)
			if err == nil {
				edited[i] = did[0]
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return edited, s.finishUp(ctx, works...)
}
