package couchbase

import (
	"reflect"
	"slices"
)

// bundle puts new tasks that differ only in ids and args into sheets, unless they are part of a unit.
func (w *work) bundle() {
	inUnit := func(d *doc) bool { return d.dirty && (d.cas != 0 || d.C != inTask || len(d.task().Needs) > 0) }
	if slices.ContainsFunc(w.order, inUnit) {
		return
	}
	var order []*doc
	for i := 0; i < len(w.order); {
		n := w.alike(i)
		if n < leastSheet {
			order, i = append(order, w.order[i]), i+1
			continue
		}
		r, from := block(w.order[i].ID)
		sh := &sheet{task: *w.order[i].task(), From: from}
		sh.first, sh.ID = sh.ID, r.ID
		for _, d := range w.order[i : i+n] {
			sh.Texts, sh.lots = append(sh.Texts, d.task().Args), append(sh.lots, lot{State: "a"})
			delete(w.docs, d.ref)
		}
		sh.Args = nil
		sh.sum()
		d := &doc{ref: r, body: sh, dirty: true, place: w.order[i].place}
		w.docs[r] = d
		order, i = append(order, d), i+n
	}
	w.order = order
}

// alike returns how many documents from a place on fit into one sheet.
func (w *work) alike(from int) int {
	var first task
	var at ref
	place, size, n := 0, 0, 0
	for ; from+n < len(w.order); n++ {
		d := w.order[from+n]
		t, is := d.body.(*task)
		if !is || d.cas != 0 || d.sheet != nil || !d.dirty || d.place == 0 || !t.plain() {
			break
		}
		r, p := block(t.ID)
		as := t.shared()
		if n == 0 {
			first, at, place = as, r, p
		}
		size += len(t.Args)
		if w.full[r] || w.docs[r] != nil || r != at || p != place+n || size > mostArgs || !reflect.DeepEqual(as, first) {
			break
		}
	}
	return n
}

// plain reports whether a new task may be stored in a sheet.
func (t *task) plain() bool {
	return t.State == "a" && t.Args != nil && t.loose() && !t.Awaits && !t.Held && len(t.Past) == 0
}
