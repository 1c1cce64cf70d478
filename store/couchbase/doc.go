package couchbase

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/couchbase/gocb/v2"

	"github.com/tuskqueue/tusk/store"
)

// ref names a document by a letter for its collection, and its key.
type ref struct {
	C  string `json:"c"`
	ID string `json:"id"`
}

// The collections whose documents may be part of a unit.
const (
	inTask = "t"
	inKey  = "k"
	inMeta = "m"
)

// body is the content of a document that is written as a whole: a task, a sheet, a key, a record, the leader, a worker,
// or a group of errors.
type body interface{ header() *head }

// head holds the fields that all bodies share.
type head struct {
	U    string   `json:"u,omitempty"`    // nonce of the last write, to recognize it if its answer was lost
	Us   []string `json:"us,omitempty"`   // nonces of earlier writes, the latest last
	Pin  *pin     `json:"pin,omitempty"`  // a unit is about to change the document
	Unit *unit    `json:"unit,omitempty"` // decided, and not yet carried out
	Made *origin  `json:"made,omitempty"` // the unit that created the document
	Tell string   `json:"tell,omitempty"` // a state that its children have not been told yet
	Born int64    `json:"born,omitempty"` // when it was created
	Gone bool     `json:"gone,omitempty"` // deleted; removed once Unit and Tell are done (see drop)
	Todo int64    `json:"todo,omitempty"` // since when it has had work to be done
}

func (h *head) header() *head { return h }

// keptWrites is how many nonces of earlier writes a document keeps. A process whose answer was lost recognizes its
// write as long as no more than that many writes have followed.
const keptWrites = 8

// sign gives a document the nonce of the next write.
func (h *head) sign() {
	if h.U != "" {
		h.Us = append(slices.Clone(h.Us), h.U)
		h.Us = h.Us[max(len(h.Us)-keptWrites, 0):]
	}
	h.U = nonce()
}

// passed replaces the CAS of a document that others have, or may have, written since this process wrote it. No stored
// document has this CAS, so later writes of the copy are refused.
const passed gocb.Cas = 1

// errUntold says that nobody can tell whether a write happened.
var errUntold = fmt.Errorf("the answer to a write was lost, and what it wrote has changed too much since to tell "+
	"whether it happened: %w", store.ErrUnavailable)

// open reports whether the document has work to be done.
func (h *head) open() bool { return h.Unit != nil || h.Tell != "" || h.Gone }

// doc is a document as it was read, or as it will be written.
type doc struct {
	ref
	body
	cas   gocb.Cas // 0 if it is not stored
	raw   []byte   // as it was read
	dirty bool     // it has to be written
	sheet *doc     // the sheet that holds the task; nil if the task has its own document
	place int      // its place among the tasks to append to lanes; see rules.Row
}

func (d *doc) task() *task     { return d.body.(*task) }
func (d *doc) key() *key       { return d.body.(*key) }
func (d *doc) worker() *worker { return d.body.(*worker) }

func newBody(r ref) body {
	switch {
	case isSheet(r):
		return &sheet{task: task{ID: r.ID}}
	case r.C == inTask:
		return &task{ID: r.ID}
	case r.C == inKey:
		return &key{}
	case r == leaderRef:
		return &leader{}
	case strings.HasPrefix(r.ID, errorPrefix):
		return &group{}
	case strings.HasPrefix(r.ID, workerKey("")):
		return newWorker()
	default:
		return &record{}
	}
}

// blank returns an empty document that is not stored yet.
func blank(r ref) *doc { return &doc{ref: r, body: newBody(r)} }

func (s *Store) collection(c string) *gocb.Collection {
	switch c {
	case inTask:
		return s.tasks
	case inKey:
		return s.keys
	default:
		return s.meta
	}
}

// encode returns JSON in which the text of args is unchanged.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimRight(b.Bytes(), "\n"), err
}

// verbatim makes the client leave JSON unchanged.
var verbatim = gocb.NewRawJSONTranscoder()

// read returns a document as it is stored. It returns nil if the document does not exist, or is a task or a sheet that
// cannot be read.
func (s *Store) read(ctx context.Context, r ref) (*doc, error) {
	d := blank(r)
	var err error
	d.raw, d.cas, err = s.get(ctx, s.collection(r.C), r.ID)
	if d.raw == nil || err != nil {
		return nil, err
	}
	if is, err := s.decode(ctx, d); !is {
		return nil, err
	}
	return d, nil
}

// get returns a document's bytes, or nil if it does not exist.
func (s *Store) get(ctx context.Context, from *gocb.Collection, id string) (raw []byte, cas gocb.Cas, err error) {
	err = s.again(ctx, func() error {
		raw = nil
		got, err := from.Get(id, &gocb.GetOptions{Context: ctx, Transcoder: verbatim})
		if err != nil {
			return err
		}
		cas = got.Cas()
		return got.Content(&raw)
	})
	if errors.Is(err, gocb.ErrDocumentNotFound) {
		return nil, 0, nil
	}
	return raw, cas, err
}

// fetch reads a document that is never part of a unit. It returns nil if the document does not exist. If the document
// is damaged, fetch returns what can be read, with an error.
func fetch[T any](ctx context.Context, s *Store, from *gocb.Collection, id string) (*T, gocb.Cas, error) {
	raw, cas, err := s.get(ctx, from, id)
	if raw == nil || err != nil {
		return nil, 0, err
	}
	v := new(T)
	return v, cas, decode(id, raw, v)
}

// peek returns a document as it has been decided, for reading only, or nil if it does not exist. It never waits: if the
// document is pinned, the root of the unit has its new content, or the unit is not decided.
func (s *Store) peek(ctx context.Context, r ref) (*doc, error) {
	for {
		d, err := s.locate(ctx, r)
		if d == nil || err != nil {
			return nil, err
		}
		at := d.stored()
		if p := at.header().Pin; p != nil {
			root, err := s.skipping(s.read)(ctx, p.Root)
			if err != nil {
				return nil, err
			}
			e := root.decided(p.U, r)
			if e == nil { // it may stay in its sheet
				e = root.decided(p.U, at.ref)
			}
			if e != nil {
				if d, err = e.after(); err != nil {
					return nil, err
				}
				if d.ref != r {
					d = d.of(r.ID)
				}
			} else if now, err := s.locate(ctx, r); err != nil {
				return nil, err
			} else if now == nil || now.stored().cas != at.cas || at.cas == 0 {
				continue // the unit has ended meanwhile
			}
		}
		if d == nil || d.header().Gone {
			return nil, nil
		}
		return d, nil
	}
}

// reader is a way to read a document: read, peek or load.
type reader func(ctx context.Context, r ref) (*doc, error)

// skipping returns a reader that finds nothing where read finds a damaged document.
func (s *Store) skipping(read reader) reader {
	return func(ctx context.Context, r ref) (*doc, error) {
		d, err := read(ctx, r)
		return d, s.passing(err)
	}
}

// readEach reads documents of a collection concurrently.
func readEach(ctx context.Context, c string, ids []string, read reader) ([]*doc, error) {
	return collect(len(ids), func(i int) (*doc, error) { return read(ctx, ref{c, ids[i]}) })
}

// has reports whether the document is the root of the unit u, and the unit is not done.
func (d *doc) has(u string) bool { return d != nil && d.header().Unit != nil && d.header().Unit.U == u }

// decided returns the effect of the unit u on a document, or nil if the root has no such unit or effect.
func (d *doc) decided(u string, r ref) *effect {
	if !d.has(u) {
		return nil
	}
	for i := range d.header().Unit.Effects {
		if e := &d.header().Unit.Effects[i]; e.ref == r {
			return e
		}
	}
	return nil
}

// after returns the document as it will be.
func (e *effect) after() (*doc, error) {
	d := blank(e.ref)
	if e.Doc == nil {
		d.header().Gone = true
		return d, nil
	}
	return d, decode(e.ID, e.Doc, d.body)
}

// found reports whether d was written, given the document that is stored now. If others have written it since, or if
// nobody can tell, found sets the CAS of d to passed.
func (d *doc) found(is *doc, text []byte) bool {
	h := d.header()
	switch {
	case is != nil && is.header().U == h.U:
		d.cas, d.raw = is.cas, text
		return true
	case is != nil && slices.Contains(is.header().Us, h.U):
		d.cas = passed
		return true
	case is == nil || len(h.Us) > 0 && !slices.Contains(append(is.header().Us, is.header().U), h.Us[len(h.Us)-1]):
		// It is gone, or even the write on which d is based is no longer among the recorded ones.
		d.cas = passed
	}
	return false
}

// write inserts a new document, or replaces one that is unchanged since it was read. A deleted document that has no
// work to be done is removed. write reports whether the document was unchanged.
func (s *Store) write(ctx context.Context, d *doc) (bool, error) {
	switch {
	case d.sheet != nil:
		d.dirty = true
		w := &work{s: s, ctx: ctx, docs: map[ref]*doc{d.sheet.ref: d.sheet, d.ref: d}, order: []*doc{d.sheet, d}}
		w.settle()
		return w.commit()
	case d.cas != 0 && d.header().buried():
		return s.drop(ctx, d)
	}
	level := s.durability
	// A lost beat costs at most a second attempt. But nobody rescues the tasks of a worker that is not listed.
	if w, is := d.body.(*worker); is && d.cas != 0 && !w.Combed {
		level = gocb.DurabilityLevelUnknown
	}
	return s.writeAt(ctx, d, level)
}

// writeAt writes a document with a durability. If the answer is lost, it reads the document and looks for the nonce of
// its write.
func (s *Store) writeAt(ctx context.Context, d *doc, level gocb.DurabilityLevel) (bool, error) {
	d.header().sign()
	if d.cas == 0 {
		d.header().Born = s.now(ctx)
	}
	text, err := encode(d.body)
	if err != nil {
		return false, err
	}
	var done *gocb.MutationResult
	tries, expires := 0, s.expiry(ctx, d)
	err = s.again(ctx, func() (err error) {
		tries++
		if d.cas == 0 {
			done, err = s.collection(d.C).Insert(d.ID, text, &gocb.InsertOptions{Context: ctx, Transcoder: verbatim,
				Expiry: expires, DurabilityLevel: level})
		} else {
			done, err = s.collection(d.C).Replace(d.ID, text, &gocb.ReplaceOptions{Context: ctx, Cas: d.cas,
				Transcoder: verbatim, Expiry: expires, DurabilityLevel: level})
		}
		return err
	})
	switch {
	case err == nil:
		d.cas, d.raw = done.Cas(), text
		return true, nil
	case mismatch(err) && tries > 1: // perhaps by an earlier try
		is, err := s.read(ctx, d.ref)
		return err == nil && d.found(is, text), err
	}
	return false, refusal(err)
}

// remove deletes a document if it is unchanged, and reports whether it did.
func (s *Store) remove(ctx context.Context, d *doc) (bool, error) {
	tries := 0
	err := s.again(ctx, func() error {
		tries++
		_, err := s.collection(d.C).Remove(d.ID, &gocb.RemoveOptions{Context: ctx, Cas: d.cas,
			DurabilityLevel: s.durability})
		return err
	})
	if errors.Is(err, gocb.ErrDocumentNotFound) && tries > 1 {
		return true, nil
	}
	return err == nil, refusal(err)
}

// putBack writes a document some of whose work is done. It reports whether the document was unchanged.
func (s *Store) putBack(ctx context.Context, d *doc) (bool, error) {
	if h := d.header(); h.Unit == nil && h.Tell == "" {
		h.Todo = 0
	}
	return s.write(ctx, d)
}
