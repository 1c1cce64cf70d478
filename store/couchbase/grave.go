package couchbase

import (
	"context"
	"encoding/json"
	"time"
)

// To make a document has no condition but that there is none. So a request to make one that arrives when it has come and
// gone would make it again: one whose connection has ended, and that was repeated, or that of a process that stood still
// while others did its work. The task would run once more, or be archived once more. So what is deleted while such a
// request may still be under way stays as a grave: a document of which nothing is left but that it was there. The sweep
// removes it. A key, or a task that is restored, may rise from its grave.

// lateBy is how late the request may be that makes a document.
const lateBy = 2 * time.Minute

// buried reports whether a document is deleted and nothing of it is left to be done.
func (h *head) buried() bool { return h.Gone && h.Unit == nil && h.Tell == "" && h.Pin == nil }

// grave is what is left of a document. It has no queue, key, kind or workflow, so no list asks for it.
type grave struct {
	head
	State string            `json:"st"`
	From  int               `json:"from,omitempty"` // of a sheet, which tasks it had
	Texts []json.RawMessage `json:"args,omitempty"`
	Runs  []run             `json:"runs,omitempty"`
}

// drop removes a deleted document, or makes a grave of a young one, if it is as it was read, and reports whether it was.
func (s *Store) drop(ctx context.Context, d *doc) (bool, error) {
	until := d.header().Born + s.lateBy.Microseconds()
	if until <= s.now(ctx) {
		return s.remove(ctx, d)
	}
	left := &grave{head: *d.header(), State: deleted}
	left.Gone, left.Todo = true, until
	if sh, is := d.body.(*sheet); is {
		left.From, left.Texts, left.Runs = sh.From, make([]json.RawMessage, len(sh.Texts)), sh.Runs
	}
	in := &doc{ref: d.ref, body: left, cas: d.cas}
	ok, err := s.write(ctx, in)
	d.cas = in.cas
	return ok, err
}

// there leaves a grave out.
func there(d *doc, err error) (*doc, error) {
	if d == nil || err != nil || !d.header().buried() {
		return d, err
	}
	if _, ofKey := d.body.(*key); ofKey { // it has no tasks; the next is written over it
		d.body = &key{head: head{U: d.header().U, Us: d.header().Us, Born: d.header().Born}}
		return d, nil
	}
	return nil, nil
}

// clearGrave removes a grave that is no longer needed, and reports whether a document is one.
func (s *Store) clearGrave(ctx context.Context, r ref, before int64) (is bool, err error) {
	d, err := s.read(ctx, r)
	if d == nil || err != nil || !d.header().buried() {
		return false, err
	}
	if d.header().Todo < before {
		_, err = s.remove(ctx, d)
	}
	return true, err
}
