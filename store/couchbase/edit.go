package couchbase

import (
	"context"
	"sync"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// Edit implements store.Editor. It concurrently changes tasks that no other task is bound to, those of one sheet
// together, and all others in the given order.
func (s *Store) Edit(ctx context.Context, e store.Edit) (_ []store.Edited, err error) {
	defer says(&err, "edit")
	c := e.Change
	c.RunAt = trim(c.RunAt)
	shown := s.shown.take()
	docs := make([]*doc, len(e.IDs))
	err = each(len(docs), func(i int) (err error) {
		r := taskRef(e.IDs[i])
		if docs[i] = shown[r]; docs[i] == nil {
			docs[i], err = s.load(ctx, r)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	loose := func(i int) bool { return docs[i] != nil && docs[i].task().loose() }
	parts := grouped(len(docs), func(i int) any {
		if loose(i) && docs[i].sheet != nil {
			return docs[i].sheet.ref
		}
		return i
	})
	chain := func(p int) ref {
		if i := parts[p][0]; loose(i) {
			return docs[i].stored().ref
		}
		return ref{}
	}
	edited, works := make([]store.Edited, len(docs)), make([]*work, len(parts))
	err = eachOf(len(parts), chain, func(p int) error {
		var ids []store.ID
		for _, i := range parts[p] {
			ids = append(ids, e.IDs[i])
		}
		w, first := &work{}, docs[parts[p][0]]
		works[p] = w
		if loose(parts[p][0]) && !first.dirty {
			w.have = map[ref]*doc{first.stored().ref: first.stored()}
		}
		var did []store.Edited
		err := s.do(ctx, w, func(b *rules.Batch) (err error) {
			if chain(p) != (ref{}) {
				_, err = w.load(chain(p)) // after this, the tasks of a sheet are known
			}
			if err == nil {
				did, err = b.Edit(ids, &c)
			}
			// Without a change, no write would find out whether the document is unchanged.
			w.torn = w.torn || w.have != nil && len(b.Changes()) == 0
			return err
		})
		for n := range did {
			edited[parts[p][n]] = did[n]
			// Each request to stop is told, in case whoever made the first one has died before it told the worker.
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

// loose reports whether no other task is bound to this one: by a key, by a need, or by the order of tasks that wait for
// their turn.
func (t *task) loose() bool {
	return t.Key == "" && !t.Turns && len(t.Needs)+len(t.Kids) == 0 && !t.Back
}

// shown holds the documents of the last page of tasks that this handle listed without their args. A caller that lists
// without args usually changes the tasks next, and then need not read them again. A write finds out whether a document
// is unchanged.
type shown struct {
	mu   sync.Mutex
	docs map[ref]*doc
}

// mostShown is how many bytes of documents are remembered.
const mostShown = 4 << 20

func (l *shown) put(docs []*doc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.docs = map[ref]*doc{}
	size, last := 0, (*doc)(nil)
	for _, d := range docs {
		at := d.stored()
		if at != last { // the tasks of a sheet are next to each other
			size += len(at.raw)
		}
		if last = at; size > mostShown {
			return
		}
		if h := at.header(); at.cas != 0 && h.Pin == nil && !h.open() {
			l.docs[d.ref] = d
		}
	}
}

// take returns the documents and forgets them, because only one caller may change a document.
func (l *shown) take() map[ref]*doc {
	l.mu.Lock()
	defer l.mu.Unlock()
	docs := l.docs
	l.docs = nil
	return docs
}
