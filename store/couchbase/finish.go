package couchbase

import (
	"context"
	"slices"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// Finish implements store.Leaser. The outcomes of the tasks of one sheet are one write, and so is each other outcome,
// if nothing else follows from it.
func (s *Store) Finish(ctx context.Context, outcomes []store.Outcome) (lost []store.ID, err error) {
	defer says(&err, "finish")
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	in := func(i int) ref {
		r := taskRef(outcomes[i].Task.ID)
		if outcomes[i].Task.Piece != 0 {
			r, _ = block(r.ID)
		}
		return r
	}
	groups := grouped(len(outcomes), in)
	works, refused := make([]*work, len(groups)), make([][]store.ID, len(groups))
	err = each(len(groups), func(i int) (err error) {
		var some []*store.Outcome
		for _, at := range groups[i] {
			o := outcomes[at]
			o.Then = trimmed(o.Then)
			some = append(some, &o)
		}
		works[i] = &work{}
		refused[i], err = s.finish(ctx, works[i], in(groups[i][0]), some)
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

// finish ends attempts of a task, or of the tasks of a sheet. What the handle knows of them may be out of date, so
// finish reads the document before it refuses an outcome.
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
		_, err := w.load(r) // after this, the tasks of a sheet are known
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
