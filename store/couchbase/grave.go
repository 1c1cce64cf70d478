package couchbase

import (
	"context"
	"encoding/json"
	"time"
)

// An insert has only one condition: that the document does not exist. So an insert that arrives after the document was
// created and deleted would create it again. The insert may come from a connection that ended and whose request was
// repeated, or from a process that stood still while others did its work. The task would run, or be archived, once
// more. So a document that is deleted while such a request may still be under way stays as a grave, which only records
// that it existed, until it expires. A key, or a task that is restored, may rise from its grave.

// lateBy is how late a request to create a document may arrive.
const lateBy = 2 * time.Minute

// buried reports whether a document is deleted and has no more work to be done.
func (h *head) buried() bool { return h.Gone && h.Unit == nil && h.Tell == "" && h.Pin == nil }

// grave is what remains of a deleted document. It has no queue, key, kind or workflow, so no list finds it.
type grave struct {
	head
	State string            `json:"st"`
	From  int               `json:"from,omitempty"` // for a sheet: the place of its first task in the block
	Texts []json.RawMessage `json:"args,omitempty"`
	Runs  []run             `json:"runs,omitempty"`
}

// young returns for how long a request to create the document may still arrive.
func (s *Store) young(ctx context.Context, h *head) time.Duration {
	return time.Duration(h.Born-s.now(ctx))*time.Microsecond + s.lateBy
}

// forgetAfter is how long a dead worker is remembered, so that one that was only suspended learns of it when it wakes
// up, and how long a deleted record is.
const forgetAfter = 24 * time.Hour

// expiry returns how long after it is written the server removes a document; 0 means never. It removes graves, dead
// workers that hold nothing, and records that were deleted, or are about to be created.
func (s *Store) expiry(ctx context.Context, d *doc) time.Duration {
	if d.header().buried() { // the root of another unit may be a grave, which unpin writes back
		return max(s.young(ctx, d.header()), 0) + time.Second // the server drops the fraction
	}
	switch b := d.body.(type) {
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
	ok, err := s.write(ctx, in)
	d.cas = in.cas
	return ok, err
}

// there filters out graves.
func there(d *doc, err error) (*doc, error) {
	if d == nil || err != nil || !d.header().buried() {
		return d, err
	}
	if _, ofKey := d.body.(*key); ofKey { // it has no tasks; the next version is written over it
		d.body = &key{head: head{U: d.header().U, Us: d.header().Us, Born: d.header().Born}}
		return d, nil
	}
	return nil, nil
}
