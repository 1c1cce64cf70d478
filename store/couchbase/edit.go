package couchbase

import (
	"context"
	"sync"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// Edit implements store.Editor. It concurrently changes tasks that no other task is bound to, and all others in the
// given order.
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
	chain := func(i int) string {
		if d := docs[i]; d != nil && d.task().loose() {
			return d.stored().ID // tasks of one sheet go one after another
		}
		return ""
	}
	edited, works := make([]store.Edited, len(docs)), make([]*work, len(docs))
	err = eachOf(len(docs), chain, func(i int) error {
		w := &work{}
		works[i] = w
		if d := docs[i]; d != nil && !d.dirty && d.sheet == nil && d.task().loose() {
			w.have = map[ref]*doc{d.ref: d}
		}
		err := s.do(ctx, w, func(b *rules.Batch) error {
			did, err := b.Edit(e.IDs[i:i+1], &c)
			if err == nil {
				edited[i] = did[0]
			}
			// Without a change, no write would find out whether the document is unchanged.
			w.torn = w.torn || w.have != nil && len(b.Changes()) == 0
			return err
		})
		// Each request to stop is told, in case whoever made the first one has died before it told the worker.
		if err == nil && edited[i].Result == store.Requested {
			err = s.stop(ctx, w.of(e.IDs[i]).task())
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
	size := 0
	for _, d := range docs {
		if size += len(d.raw); size > mostShown {
			return
		}
		if h := d.header(); d.cas != 0 && h.Pin == nil && !h.open() {
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
