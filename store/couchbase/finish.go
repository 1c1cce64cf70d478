package couchbase

import (
	"context"
	"slices"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// Finish implements store.Leaser. The outcomes of the tasks of a sheet are one write, as is each other, where nothing
// follows from them.
func (s *Store) Finish(ctx context.Context, outcomes []store.Outcome) (lost []store.ID, err error) {
	defer says(&err, "finish")
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	of := map[ref][]*store.Outcome{}
	var names []ref
	for i := range outcomes {
		o := outcomes[i]
		o.Then = trimmed(o.Then)
		r := taskRef(o.Task.ID)
		if o.Task.Piece != 0 {
			r, _ = block(r.ID)
		}
		if of[r] == nil {
			names = append(names, r)
		}
		of[r] = append(of[r], &o)
	}
	works, refused := make([]*work, len(names)), make([][]store.ID, len(names))
	err = each(len(names), func(i int) (err error) {
		works[i] = &work{}
		refused[i], err = s.finish(ctx, works[i], names[i], of[names[i]])
		return err
	})
	if err == nil {
		err = s.finishUp(ctx, works...)
	}
	if err != nil {
		return nil, err
	}
	var ends []*rules.End
	for _, w := range works {
		ends = append(ends, w.batch.Ends...)
	}
	return slices.Concat(refused...), s.account(ctx, ends)
}

// finish ends attempts of a task, or of the tasks of a sheet. What the handle knows of them may be out of date, so it
// looks before it refuses one.
func (s *Store) finish(ctx context.Context, w *work, r ref, outcomes []*store.Outcome) (lost []store.ID, err error) {
	w.have = map[ref]*doc{}
	for _, o := range outcomes {
		if d := s.lent.take(o.Task); d != nil {
			w.have[d.ref] = d
		}
	}
	if isSheet(r) {
		w.have = s.lent.sheet(r)
	}
	err = s.do(ctx, w, func(b *rules.Batch) error {
		_, err := w.load(r) // of a sheet it is known then what lies in it
		if err == nil {
			lost, err = b.Finish(outcomes)
		}
		w.torn = w.torn || len(lost) > 0 && len(w.have) > 0
		return err
	})
	if is := w.docs[r]; is != nil && err == nil {
		s.lent.lay(is)
	}
	return lost, err
}
