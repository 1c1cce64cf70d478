package couchbase

import (
	"context"
	"encoding/json"
	"slices"
	"time"
)

// unit is what was decided together with the write of one document, its root, and is still to be done to others.
// That write is the decision: before it nothing has happened, after it all has, though others may have to be told
// yet. Those that are there already were pinned before it, so nobody has changed them since they were read.
//
// It is no transaction of the database's: nobody is bound by it but who writes tasks, keys and records by this
// package. Whoever meets a root or a pinned document that stays so has its owner's work done, or undone.
type unit struct {
	U       string   `json:"u"`
	Effects []effect `json:"e"`
}

// effect is a document as it is to be.
type effect struct {
	ref
	New bool            `json:"new,omitempty"`
	Doc json.RawMessage `json:"doc,omitempty"` // none: it is to be removed
}

// origin names a unit.
type origin struct {
	Root ref    `json:"r"`
	U    string `json:"u"`
}

// pin says that a unit is about to change a document.
type pin struct {
	origin
	At int64 `json:"at"`
}

// patience is how long a unit is left to its owner. Half of it later at the latest the owner looks whether it still
// is.
const patience = time.Second

// load returns a document that no unit is about to change, and of which nothing is left to be done; nil: there is
// none.
func (s *Store) load(ctx context.Context, r ref) (*doc, error) {
	for try := 0; ; try++ {
		d, err := s.locate(ctx, r)
		if d == nil || err != nil {
			return nil, err
		}
		at := d.stored()
		h := at.header()
		switch {
		case h.Pin != nil:
			err = s.unpin(ctx, at)
		case !h.open():
			return d, nil
		case s.now(ctx)-h.Todo > s.patience.Microseconds():
			err = s.complete(ctx, at)
		}
		if err != nil {
			return nil, err
		}
		if err := pause(ctx, try+1); err != nil {
			return nil, err
		}
	}
}

// unpin has a pinned document free again, if the unit has had its time: the unit is completed if it was decided, or
// made impossible.
func (s *Store) unpin(ctx context.Context, d *doc) error {
	p := d.header().Pin
	if s.now(ctx)-p.At < s.patience.Microseconds() {
		return nil
	}
	root, err := s.read(ctx, p.Root)
	if err = s.passing(err); err != nil {
		return err
	}
	if root.has(p.U) {
		return s.complete(ctx, root)
	}
	if root != nil {
		if d.cas == 0 { // it was moving out of its sheet, and has
			return nil
		}
		if ok, err := s.write(ctx, root); !ok || err != nil {
			return err // it has changed: perhaps it was decided now
		}
	}
	if d.cas != 0 {
		_, err = s.release(ctx, d)
	}
	return err
}

// release takes a pin off. A key that was made for the pin alone goes.
func (s *Store) release(ctx context.Context, d *doc) (bool, error) {
	d.header().Pin = nil
	if k, is := d.body.(*key); is && k.Tasks == 0 && k.Holder == "" {
		k.Gone = true
	}
	return s.putBack(ctx, d)
}

// complete does what was decided and left undone by somebody else.
func (s *Store) complete(ctx context.Context, root *doc) error {
	var docs []*doc
	if root.header().Unit != nil {
		var err error
		if docs, err = s.redo(ctx, root); err != nil {
			return err
		}
		if err := s.clear(ctx, root); err != nil {
			return err
		}
	}
	w := &work{}
	for _, d := range append(docs, root) {
		if t := d.ready(); t != nil {
			w.ready = append(w.ready, t)
		}
		if d.header().Tell != "" {
			w.told = append(w.told, d)
		}
	}
	return s.finishUp(ctx, w)
}

// redo does what is left to be done of somebody else's unit, and returns the documents that it made or wrote.
func (s *Store) redo(ctx context.Context, root *doc) ([]*doc, error) {
	var others, made []*doc
	for _, e := range root.header().Unit.Effects {
		d := blank(e.ref)
		if e.Doc == nil {
			d.header().Gone = true
		} else if err := json.Unmarshal(e.Doc, d.body); err != nil {
			return nil, err
		}
		if e.New {
			made = append(made, d)
		} else {
			others = append(others, d)
		}
	}
	err := s.carryOut(ctx, root, others, made, 0)
	others = slices.DeleteFunc(others, func(d *doc) bool { return d.cas == passed })
	return append(made, others...), err
}

// carryOut does what a unit has decided at an instant. What somebody else has done meanwhile is left alone. New tasks
// are stored first: a task that others need may end as soon as it is free again, and they must be there to be told.
func (s *Store) carryOut(ctx context.Context, root *doc, others, made []*doc, since int64) error {
	err := s.makeAll(ctx, made)
	if err == nil && (root.cas == passed || s.now(ctx)-since >= s.patience.Microseconds()/2) {
		err = s.confirm(ctx, root, made)
	}
	if err != nil {
		return err
	}
	return each(len(others), func(i int) error {
		d := others[i]
		if d.cas != 0 { // it was pinned here
			if ok, err := s.putBack(ctx, d); ok || err != nil {
				return err
			}
		}
		return s.rewrite(ctx, root, d)
	})
}

// outlive waits until a unit is done, or does it, so that nobody makes what is to be deleted again. That of a root that
// cannot be read nobody does.
func (s *Store) outlive(ctx context.Context, o *origin) error {
	root, err := s.read(ctx, o.Root)
	if err == nil && root.has(o.U) {
		_, err = s.load(ctx, o.Root)
	}
	return s.passing(err)
}

// rewrite gives a pinned document the content that was decided, for as long as it is pinned for that. Others may write
// it as it is meanwhile. The CAS of one that was not written is passed.
func (s *Store) rewrite(ctx context.Context, root, to *doc) error {
	for try := 1; ; try++ {
		to.cas = passed
		is, err := s.read(ctx, to.ref)
		err = s.passing(err)
		if is == nil || err != nil || is.header().Pin == nil || is.header().Pin.U != root.header().Unit.U {
			return err
		}
		to.cas, to.header().Born = is.cas, is.header().Born
		if ok, err := s.putBack(ctx, to); ok || err != nil {
			return err
		}
		if err := pause(ctx, try); err != nil {
			return err
		}
	}
}

// makeAll stores the new documents of a unit, those that need others first.
func (s *Store) makeAll(ctx context.Context, made []*doc) error {
	return childrenFirst(ctx, made, roundsOf(made), s.make)
}

// make stores a new document of a unit. One that somebody else has made is written, unless that has happened already: so
// who made it, and finds the unit completed, does not take it back. A lease is no such write, since a failover may forget
// it. From the grave of an earlier life it rises, or is made where that was cleared meanwhile.
func (s *Store) make(ctx context.Context, d *doc) error {
	for try := 0; ; try++ {
		if err := pause(ctx, try); err != nil {
			return err
		}
		h := d.header()
		d.cas, h.U, h.Us = 0, "", nil
		if made, err := s.write(ctx, d); made || err != nil {
			return err
		}
		is, err := s.read(ctx, d.ref)
		if err != nil || is == nil && try > 0 { // it cannot be read
			return err
		} else if is == nil {
			continue
		}
		was, own := is.header().Made, h.Made
		switch {
		case is.header().buried() && was != nil && own != nil && *was == *own: // it has come and gone
			return nil
		case is.header().buried():
			d.cas, h.U, h.Us = is.cas, "", nil
			is = d
		case len(is.header().Us) > 0 && is.task().State != "r":
			return nil
		}
		if made, err := s.write(ctx, is); made || err != nil {
			return err
		}
	}
}

// confirm takes documents back that were made too late: somebody else had made them for the same unit, and they have
// come and gone since. Whoever carries a unit out, its owner too, writes what is there already, so a document that was
// made in time is not as its maker has left it.
func (s *Store) confirm(ctx context.Context, root *doc, made []*doc) error {
	is, err := s.read(ctx, root.ref)
	if err != nil || is.has(root.header().Unit.U) {
		return err
	}
	err = each(len(made), func(i int) error {
		if made[i].cas == 0 { // somebody else has made it
			return nil
		}
		_, err := s.remove(ctx, made[i])
		return err
	})
	if is == nil || err != nil {
		return err
	}
	if k, ofKey := is.body.(*key); ofKey && k.Remade > root.header().Todo { // nobody has completed the unit
		return errRemade
	}
	return nil
}

// clear takes the unit off its root. Who comes too late finds that done.
func (s *Store) clear(ctx context.Context, root *doc) error {
	root.header().Unit = nil
	_, err := s.putBack(ctx, root)
	return err
}
