package couchbase

import (
	"context"
	"encoding/json"
	"slices"
	"time"
)

// unit is a change to several documents. The write of one of them, the root, is the decision, and holds the unit:
// before it nothing has happened; after it everything has, although other documents may not show it yet. Existing
// documents are pinned before the decision, so that nobody changes them after they were read.
//
// A unit is not a database transaction: it binds only this package. A process that finds a root with a unit, or a
// pinned document, waits for the owner, and then completes or undoes the owner's work.
type unit struct {
	U       string   `json:"u"`
	Effects []effect `json:"e"`
}

// effect is the new content of a document.
type effect struct {
	ref
	New bool            `json:"new,omitempty"`
	Doc json.RawMessage `json:"doc,omitempty"` // empty if the document is deleted
}

type origin struct {
	Root ref    `json:"r"`
	U    string `json:"u"`
}

// pin marks a document that a unit is about to change.
type pin struct {
	origin
	At int64 `json:"at"`
}

// patience is how long others leave a unit to its owner. An owner that takes more than half of it checks whether others
// have completed the unit.
const patience = time.Second

// load returns a document that is not pinned and has no work to be done, or nil if it does not exist. It waits for
// other processes, and after a while does their work.
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

// unpin frees a pinned document once the owner of the unit has had its time. It completes a unit that was decided, and
// makes any other impossible by writing the root.
func (s *Store) unpin(ctx context.Context, d *doc) error {
	p := d.header().Pin
	if s.now(ctx)-p.At < s.patience.Microseconds() {
		return nil
	}
	root, err := s.skipping(s.read)(ctx, p.Root)
	if err != nil {
		return err
	}
	switch {
	case root.has(p.U):
		return s.complete(ctx, root)
	case d.cas == 0: // it was about to move out of its sheet, and has since
		return nil
	case root != nil:
		if ok, err := s.write(ctx, root); !ok || err != nil { // it has changed, perhaps by the decision
			return err
		}
	}
	_, err = s.release(ctx, d)
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

// complete does what another process has decided and left undone.
func (s *Store) complete(ctx context.Context, root *doc) (err error) {
	var docs []*doc
	if root.header().Unit != nil {
		if docs, err = s.redo(ctx, root); err == nil {
			err = s.clear(ctx, root)
		}
		if err != nil {
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

// redo carries out another process's unit, and returns the documents that it created or wrote.
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

// carryOut carries out a unit that was decided at an instant, except for what other processes have done already. It
// stores new tasks first: a task that they need may end as soon as its pin is removed, and then tells them.
func (s *Store) carryOut(ctx context.Context, root *doc, others, made []*doc, since int64) error {
	for _, round := range slices.Backward(roundsOf(made)) { // each task before the tasks that it needs
		if err := each(len(round), func(i int) error { return s.make(ctx, made[round[i]]) }); err != nil {
			return err
		}
	}
	if root.cas == passed || s.now(ctx)-since >= s.patience.Microseconds()/2 {
		if err := s.confirm(ctx, root, made); err != nil {
			return err
		}
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

// rewrite gives a pinned document its decided content, as long as it has this unit's pin: others may write the document
// and keep the pin. If rewrite does not write the document, it sets the CAS of to to passed.
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

// make stores a new document of a unit. If another process has created the document, make writes it once more, unless
// it was written again already. From this second write its creator sees that it was created in time (see confirm). A
// lease does not count as such a write, because a failover may lose it. make replaces the grave of an earlier document,
// but not a grave of this one.
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
		case is.header().buried() && was != nil && own != nil && *was == *own: // it was created and deleted
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

// confirm removes documents that were created too late: other processes had created them for the same unit, and they
// were deleted since. Each process that carries out a unit writes the documents that it finds (see make). So a document
// that was created in time has changed since, and is not removed.
func (s *Store) confirm(ctx context.Context, root *doc, made []*doc) error {
	is, err := s.read(ctx, root.ref)
	if err != nil || is.has(root.header().Unit.U) {
		return err
	}
	err = each(len(made), func(i int) error {
		if made[i].cas == 0 { // another process has created it
			return nil
		}
		_, err := s.remove(ctx, made[i])
		return err
	})
	if is == nil || err != nil {
		return err
	}
	if k, ofKey := is.body.(*key); ofKey && k.Remade > root.header().Todo { // the unit was lost
		return errRemade
	}
	return nil
}

// clear removes a unit that is done from its root, unless others have. Others may also write a root and keep its unit:
// the leader when it renews its term, or a process that makes another unit impossible.
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
