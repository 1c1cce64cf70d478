package couchbase

import (
	"context"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// Edit implements store.Editor. It changes loose tasks concurrently, those of one sheet together, and all others one by
// one, in the given order.
func (s *Store) Edit(ctx context.Context, e store.Edit) (_ []store.Edited, err error) {
	defer says(&err, "edit")
	groups, err := s.bySheet(ctx, len(e.IDs), func(i int) store.ID { return e.IDs[i] })
	if err != nil {
		return nil, err
	}
	docs, err := collect(len(groups), func(g int) (*doc, error) { // the first of each group
		return s.load(ctx, taskRef(e.IDs[groups[g][0]]))
	})
	if err != nil {
		return nil, err
	}
	chain := func(g int) ref {
		if d := docs[g]; d != nil && d.task().loose() {
			return d.stored().ref
		}
		return ref{}
	}
	edited, works := make([]store.Edited, len(e.IDs)), make([]*work, len(groups))
	err = eachOf(len(groups), chain, func(g int) error {
		w, ids, in := &work{}, pick(e.IDs, groups[g]), chain(g)
		works[g] = w
		if in != (ref{}) {
			w.have = map[ref]*doc{in: docs[g].stored()}
		}
		var did []store.Edited
		err := s.do(ctx, w, func(b *rules.Batch) (err error) {
			if in != (ref{}) {
				_, err = w.load(in) // so that the tasks of a sheet are not read one by one
			}
			if err == nil {
				did, err = b.Edit(ids, &e.Change)
			}
			return err
		})
		for n := range did {
			edited[groups[g][n]] = did[n]
			// A repeated request tells the worker again, in case the process of the first one died before it did.
			if err == nil && did[n].Result == store.Requested {
				err = s.stop(ctx, w.of(ids[n]).task())
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return edited, s.finishUp(ctx, works...)
}

// loose reports whether no key, need or order of turns ties the task to others.
func (t *task) loose() bool {
	return t.Key == "" && !t.Turns && len(t.Needs)+len(t.Kids) == 0 && !t.Back
}
