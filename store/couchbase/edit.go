package couchbase

import (
	"context"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// Edit implements store.Editor. Tasks to which no other is bound are changed beside each other, all others in the order
// in which they were given.
func (s *Store) Edit(ctx context.Context, e store.Edit) (_ []store.Edited, err error) {
	defer says(&err, "edit")
	edited := make([]store.Edited, len(e.IDs))
	works := make([]*work, len(e.IDs))
	c := e.Change
	c.RunAt = trim(c.RunAt)
	edit := func(i int, have *doc) error {
		works[i] = &work{}
		if have != nil {
			works[i].have = map[ref]*doc{have.ref: have}
		}
		return s.do(ctx, works[i], func(b *rules.Batch) error {
			did, err := b.Edit(e.IDs[i:i+1], &c)
			if err == nil {
				edited[i] = did[0]
			}
			return err
		})
	}
	docs := make([]*doc, len(e.IDs))
	err = each(len(docs), func(i int) (err error) {
		docs[i], err = s.load(ctx, taskRef(e.IDs[i]))
		return err
	})
	if err != nil {
		return nil, err
	}
	seen := map[store.ID]bool{}
	var loose, bound []int
	for i, id := range e.IDs {
		if d := docs[i]; d != nil && d.task().loose() && !seen[id] {
			loose = append(loose, i)
		} else {
			bound = append(bound, i)
		}
		seen[id] = true
	}
	err = each(len(loose), func(n int) error { return edit(loose[n], docs[loose[n]]) })
	for _, i := range bound {
		if err == nil {
			err = edit(i, nil)
		}
	}
	if err != nil {
		return nil, err
	}
	return edited, s.finishUp(ctx, works...)
}

// loose reports whether no other task is bound to a task: by a key, or by a need.
func (t *task) loose() bool { return t.Key == "" && len(t.Needs)+len(t.Kids) == 0 && !t.Back }
