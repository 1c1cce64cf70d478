package couchbase

import (
	"context"
	"encoding/json"
	"slices"
	"time"
)

// unit is what was decided by the write of one document, its root, and must still be done to others. That write is the
// decision: before it nothing has happened; after it everything has, although other documents may not show it yet.
// Existing documents were pinned before the decision, so nobody has changed them since they were read.
//
// A unit is not a database transaction: it binds only the code in this package that writes tasks, keys and records.
// Anyone who meets a root or a pinned document that stays so completes the owner's work, or undoes it.
type unit struct {
	U       string   `json:"u"`
	Effects []effect `json:"e"`
}

// effect is a document as it will be.
type effect struct {
	ref
	New bool            `json:"new,omitempty"`
	Doc json.RawMessage `json:"doc,omitempty"` // empty if the document will be removed
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

// patience is how long a unit is left to its owner. An owner that has taken more than half of it checks whether the
// unit still stands.
const patience = time.Second

// load returns a document that no unit is about to change and that has no more work to be done. It returns nil if there
// is none.
func (s *Store) load(ctx context.Context, r ref) (loaded *doc, err error) {
	err = until(ctx, func(int) (bool, error) {
		d, err := s.locate(ctx, r)
		if d == nil || err != nil {
			return true, err
		}
		at := d.stored()
		h := at.header()
		switch {
		case h.Pin != nil:
			return false, s.unpin(ctx, at)
		case h.open() && s.now(ctx)-h.Todo > s.patience.Microseconds():
			return false, s.complete(ctx, at)
		case h.open():
			return false, nil
		}
		loaded = d
		return true, nil
	})
	return loaded, err
}

// unpin frees a pinned document once the unit has had its time: if the unit was decided, unpin completes it, else unpin
// makes it impossible.
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
		if d.cas == 0 { // it has moved out of its sheet meanwhile
			return nil
		}
		if ok, err := s.write(ctx, root); !ok || err != nil {
			// The root has changed, so the unit may have been decided now.
			return err
		}
	}
	if d.cas != 0 {
		_, err = s.release(ctx, d)
	}
	return err
}

// release removes a pin. A key that was created only for the pin is deleted.
func (s *Store) release(ctx context.Context, d *doc) (bool, error) {
	d.header().Pin = nil
	if k, is := d.body.(*key); is && k.Tasks == 0 && k.Holder == "" {
		k.Gone = true
	}
	return s.putBack(ctx, d)
}

// complete finishes what somebody else decided and left undone.
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

// redo carries out the rest of somebody else's unit, and returns the documents that it created or wrote.
func (s *Store) redo(ctx context.Context, root *doc) ([]*doc, error) {
	var others, made []*doc
	for _, e := range root.header().Unit.Effects {
		d, err := e.after()
		if err != nil {
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

// carryOut carries out a unit that was decided at an instant. It leaves alone what somebody else has done meanwhile. It
// stores new tasks first: a task that they need may end as soon as its pin is removed, and they must exist to be told.
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

// rewrite gives a pinned document its decided content, as long as it has this unit's pin. Others may write the document
// meanwhile and keep the pin. If rewrite does not write the document, the CAS of to is passed.
func (s *Store) rewrite(ctx context.Context, root, to *doc) error {
	return until(ctx, func(int) (bool, error) {
		to.cas = passed
		is, err := s.read(ctx, to.ref)
		err = s.passing(err)
		if is == nil || err != nil || is.header().Pin == nil || is.header().Pin.U != root.header().Unit.U {
			return true, err
		}
		to.cas, to.header().Born = is.cas, is.header().Born
		return s.putBack(ctx, to)
	})
}

// makeAll stores the new documents of a unit, each task before the tasks that it needs.
func (s *Store) makeAll(ctx context.Context, made []*doc) error {
	for _, round := range slices.Backward(roundsOf(made)) {
		if err := each(len(round), func(i int) error { return s.make(ctx, made[round[i]]) }); err != nil {
			return err
		}
	}
	return nil
}

// make stores a new document of a unit. If somebody else has created the document already, make writes it once more,
// unless that has happened already. So its creator, on finding the unit completed, does not take it back. A lease does
// not count as such a write, because a failover may lose it. A document rises from the grave of an earlier life, or is
// created if that grave was cleared meanwhile.
func (s *Store) make(ctx context.Context, d *doc) error {
	return until(ctx, func(try int) (bool, error) {
		h := d.header()
		d.cas, h.U, h.Us = 0, "", nil
		if made, err := s.write(ctx, d); made || err != nil {
			return made, err
		}
		is, err := s.read(ctx, d.ref)
		if err != nil || is == nil && try > 0 { // it cannot be read
			return true, err
		} else if is == nil {
			return false, nil
		}
		was, own := is.header().Made, h.Made
		switch {
		case is.header().buried() && was != nil && own != nil && *was == *own: // it has come and gone
			return true, nil
		case is.header().buried():
			d.cas, h.U, h.Us = is.cas, "", nil
			is = d
		case len(is.header().Us) > 0 && is.task().State != "r":
			return true, nil
		}
		return s.write(ctx, is)
	})
}

// confirm takes back documents that were created too late: somebody else had created them for the same unit, and they
// were deleted since. Everybody who carries out a unit, including its owner, writes the documents that exist already.
// So a document that was created in time has changed since its creator wrote it.
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

// clear removes the unit, which is carried out, from its root. Others may have done so, and may write a root and keep
// its unit: the leader its term, or a process that frees what another unit has pinned.
func (s *Store) clear(ctx context.Context, root *doc) error {
	u := root.header().Unit.U
	return until(ctx, func(try int) (bool, error) {
		if try > 0 {
			is, err := s.read(ctx, root.ref)
			if err != nil || !is.has(u) {
				return true, err
			}
			root = is
		}
		root.header().Unit = nil
		return s.putBack(ctx, root)
	})
}
