package couchbase

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/tuskqueue/tusk/store"
)

// commit writes all changed documents of a try, or none of them, and reports whether it did.
func (w *work) commit() (bool, error) {
	if w.torn {
		return false, nil
	}
	if err := w.s.openAll(w.ctx, w.order); err != nil {
		return false, err
	}
	if err := w.outliveMakers(); err != nil {
		return false, err
	}
	var stored, made []*doc
	for _, d := range w.order {
		switch {
		case !d.dirty:
		case d.cas != 0 || d.C != inTask:
			stored = append(stored, d)
		case !d.header().Gone:
			made = append(made, d)
		}
	}
	root := w.choose(stored)
	switch {
	case root != nil:
	case len(roundsOf(made)) < 2:
		return w.insert(made)
	default: // some of them need others, so all are stored or none
		root, made = made[0], made[1:]
	}
	others := slices.DeleteFunc(stored, func(d *doc) bool { return d == root })
	return w.decide(root, others, made)
}

// outliveMakers waits for the units that created the documents about to be deleted, or completes them. Otherwise a
// process could carry out such a unit later and create the document again. A unit whose root is written here is done
// already (see load), and a unit whose root cannot be read is never carried out.
func (w *work) outliveMakers() error {
	var makers []*origin
	for _, d := range w.order {
		m := d.header().Made
		if !d.dirty || !d.header().Gone || m == nil {
			continue
		}
		if root := w.docs[m.Root]; root == nil || !root.dirty {
			makers = append(makers, m)
		}
	}
	return each(len(makers), func(i int) error {
		root, err := w.s.read(w.ctx, makers[i].Root)
		if err == nil && root.has(makers[i].U) {
			_, err = w.s.load(w.ctx, makers[i].Root)
		}
		return w.s.passing(err)
	})
}

// insert stores new tasks that do not change other documents, unless they exist already: ids are used once. If another
// call's sheet has the block of a sheet, the next try stores the tasks separately.
func (w *work) insert(made []*doc) (bool, error) {
	taken := make([]bool, len(made))
	err := each(len(made), func(i int) error {
		d := made[i]
		if ok, err := w.s.write(w.ctx, d); ok || err != nil || !isSheet(d.ref) {
			return err
		}
		is, err := w.s.read(w.ctx, d.ref)
		taken[i] = is != nil && !is.sheetOf().covers(d.sheetOf())
		return err
	})
	for i, d := range made {
		if taken[i] {
			w.full[d.ref] = true
		}
	}
	return !slices.Contains(taken, true), err
}

// choose returns the root: the caller's choice, else a key, else the first document. It prefers keys that exist.
func (w *work) choose(stored []*doc) *doc {
	if w.root != nil {
		return w.root
	}
	var root *doc
	for _, d := range stored {
		if root == nil || d.C == inKey && (root.C != inKey || root.cas == 0 && d.cas != 0) {
			root = d
		}
	}
	return root
}

// decide pins the documents about to change, writes the root, and carries out the unit.
func (w *work) decide(root *doc, others, made []*doc) (bool, error) {
	s, ctx, now := w.s, w.ctx, w.s.now(w.ctx)
	u, err := plan(root, others, made, now)
	if err != nil {
		return false, err
	}
	// Before anything is pinned, the root must exist, so that other processes can make this unit impossible.
	if root.cas == 0 && len(others) > 0 {
		place := blank(root.ref) // an empty record expires like a deleted one
		if ok, err := s.write(ctx, place); !ok || err != nil {
			return false, err
		}
		root.cas, root.header().Born = place.cas, place.header().Born
	}
	pinned, err := collect(len(others), func(i int) (*doc, error) {
		return s.pin(ctx, others[i], &pin{origin{root.ref, u.U}, now})
	})
	for i, p := range pinned {
		if err == nil && p == nil {
			err = errConflict
		} else if p != nil {
			others[i].cas, others[i].header().Born = p.cas, p.header().Born
		}
	}
	if err == nil {
		err = w.writeRoot(root)
	}
	if err == errConflict {
		return false, each(len(pinned), func(i int) error {
			if pinned[i] == nil {
				return nil
			}
			_, err := s.release(ctx, pinned[i])
			return err
		})
	}
	if err == nil && u != nil && root.cas == 0 { // an earlier call with the same ids has decided this
		_, err = s.load(ctx, root.ref)
		return err == nil, err
	}
	if err != nil || u == nil {
		return err == nil, err
	}
	if err = s.carryOut(ctx, root, others, made, now); err == nil {
		err = s.clear(ctx, root)
	}
	if err == nil || errors.Is(err, errRemade) {
		return err == nil, err
	}
	root.cas = passed // the unit must be done before the next write
	slog.Default().Warn("couchbase: a change is decided, and the rest of it is left to the sweep", "document", root.ID,
		"error", err)
	return true, nil
}

// pin marks a document as about to change. It returns nil if the document has changed since it was read. A pin is as
// durable as the decision that relies on it: if a failover lost the pin, the decided effect would count as done.
func (s *Store) pin(ctx context.Context, d *doc, p *pin) (*doc, error) {
	was := blank(d.ref)
	was.cas, was.raw = d.cas, d.raw
	if d.raw != nil {
		if is, err := s.decode(ctx, was); !is {
			return nil, err
		}
	}
	was.header().Pin, was.header().Todo = p, p.At
	if ok, err := s.write(ctx, was); !ok || err != nil {
		return nil, err
	}
	return was, nil
}

// mostUnit limits the bytes of a root and its effects: a document has at most 20 MiB.
const mostUnit = 20<<20 - 64<<10

// errTooLarge refuses a unit before any of it is written.
var errTooLarge = fmt.Errorf("%w: what is stored together is first written into one document, which has 20 MiB at most"+
	": bring fewer tasks in one call, or smaller args", store.ErrUnstorable)

// alone is for calls that are one unit: if the unit was too large, it adds to the error that nothing was stored.
func alone(err error) error {
	if errors.Is(err, errTooLarge) {
		return fmt.Errorf("%w: %w", store.ErrNotCommitted, err)
	}
	return err
}

// plan puts the unit into the root and returns it, or nil if it would have no effects.
func plan(root *doc, others, made []*doc, now int64) (*unit, error) {
	h, u, size := root.header(), &unit{U: nonce()}, 0
	h.Todo = 0
	for _, d := range append(made[:len(made):len(made)], others...) { // new tasks first; see carryOut
		if d.header().Tell != "" {
			d.header().Todo = now
		}
		e := effect{ref: d.ref, New: d.C == inTask && d.cas == 0}
		if e.New {
			d.header().Made = &origin{root.ref, u.U}
		}
		if !d.header().Gone || d.header().Tell != "" {
			text, err := encode(d.body)
			if err != nil {
				return nil, err
			}
			e.Doc = text
		}
		u.Effects, size = append(u.Effects, e), size+len(e.Doc)
	}
	if len(u.Effects) > 0 || h.Tell != "" {
		h.Todo = now
	}
	if len(u.Effects) == 0 {
		return nil, nil
	}
	if h.Unit = u; size > mostUnit/2 {
		if text, err := encode(root.body); err != nil || len(text) > mostUnit {
			return nil, cmp.Or(err, errTooLarge)
		}
	}
	return u, nil
}

// writeRoot writes the root, which is the decision.
func (w *work) writeRoot(root *doc) error {
	was := root.cas
	ok, err := w.s.write(w.ctx, root)
	switch {
	case err != nil || ok || was == 0 && root.cas == 0 && root.C == inTask: // an id is used once; see insert
		return err
	case root.cas == passed && was != passed:
		return errUntold
	}
	return errConflict
}
