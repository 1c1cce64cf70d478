package couchbase

import (
	"context"
	"sync"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// Edit implements store.Editor. Tasks to which no other is bound are changed beside each other, all others in the order
// in which they were given.
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
			return d.stored().ID // those of a sheet one after another
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
		return s.do(ctx, w, func(b *rules.Batch) error {
			did, err := b.Edit(e.IDs[i:i+1], &c)
			if err == nil {
				edited[i] = did[0]
			}
			w.torn = w.torn || w.have != nil && len(b.Changes()) == 0 // no write would find out whether it is still so
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return edited, s.finishUp(ctx, works...)
}

// loose reports whether no other task is bound to a task: by a key, by a need, or by the order of those that wait for
// their turn.
func (t *task) loose() bool {
	return t.Key == "" && !t.Turns && len(t.Needs)+len(t.Kids) == 0 && !t.Back
}

// shown are the documents of the page of tasks that this handle has listed last, without their args: who does that goes
// on to change them, and then need not read them again. A write finds out whether one is still as it was.
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

// take returns them, and forgets them: whoever changes a document has it alone.
func (l *shown) take() map[ref]*doc {
	l.mu.Lock()
	defer l.mu.Unlock()
	docs := l.docs
	l.docs = nil
	return docs
}
