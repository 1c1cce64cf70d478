package couchbase

import (
	"context"
	"encoding/json"
	"time"
)

// An insert that arrives after the document was created and deleted would create it again, and the task would run, or
// be archived, once more. Such an insert may come from a connection that ended after the request was repeated on
// another, or from a process that stood still while others did its work. So a document that is deleted within lateBy of
// its creation leaves a grave, an empty document that expires. Keys and restored tasks replace their graves.

// lateBy is how late a request to create a document may arrive.
const lateBy = 2 * time.Minute

// buried reports whether a document is deleted and has no work to be done.
func (h *head) buried() bool { return h.Gone && h.Unit == nil && h.Tell == "" && h.Pin == nil }

// grave is what remains of a deleted document. It has no queue, key, kind or workflow, so lists do not find it.
type grave struct {
	head
	State string            `json:"st"`
	From  int               `json:"from,omitempty"` // of a sheet, as Texts and Runs: so that it is one, and covers its ids
	Texts []json.RawMessage `json:"args,omitempty"`
	Runs  []run             `json:"runs,omitempty"`
}

// young returns for how much longer a request to create the document may arrive.
func (s *Store) young(ctx context.Context, h *head) time.Duration {
	return time.Duration(h.Born-s.now(ctx))*time.Microsecond + s.lateBy
}

// forgetAfter is how long the documents of deleted records and dead workers stay. Until then a worker that was only
// suspended can learn that it was declared dead.
const forgetAfter = 24 * time.Hour

// expiry returns after how long the server removes a document; 0 means never. Graves expire, as do dead workers that
// hold nothing, and records that were deleted or are about to be created.
func (s *Store) expiry(ctx context.Context, d *doc) time.Duration {
	switch b := d.body.(type) {
	case *grave:
		return max(s.young(ctx, &b.head), 0) + time.Second // the server drops the fraction
	case *record:
		if b.Body == nil && b.Unit == nil {
			return forgetAfter
		}
	case *worker:
		if b.Combed {
			return forgetAfter
		}
	}
	return 0
}

// drop removes a deleted document, or turns it into a grave if it is young. It reports whether the document was
// unchanged.
func (s *Store) drop(ctx context.Context, d *doc) (bool, error) {
	if s.young(ctx, d.header()) <= 0 {
		return s.remove(ctx, d)
	}
	left := &grave{head: *d.header(), State: deleted}
	left.Gone, left.Todo = true, 0
	if sh, is := d.body.(*sheet); is {
		left.From, left.Texts, left.Runs = sh.From, make([]json.RawMessage, len(sh.Texts)), sh.Runs
	}
	in := &doc{ref: d.ref, body: left, cas: d.cas}
	ok, err := s.writeAt(ctx, in, s.durability)
	d.cas = in.cas
	return ok, err
}

// there returns nil for a grave, except for that of a key.
func there(d *doc, err error) (*doc, error) {
	if d == nil || err != nil || !d.header().buried() {
		return d, err
	}
	if _, ofKey := d.body.(*key); ofKey { // a key without tasks, which the next version replaces
		d.body = &key{head: head{U: d.header().U, Us: d.header().Us, Born: d.header().Born}}
		return d, nil
	}
	return nil, nil
}
