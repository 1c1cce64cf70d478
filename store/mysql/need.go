package mysql

import (
	"context"
	"database/sql"
	"math"

	"github.com/tuskqueue/tusk/store"
)

// need has a task wait for others: for those among them that have not ended as it
// needs. They are locked, so that none of them ends unseen.
func (w *work) need(r *row, needs []store.Need) {
	r.needing, r.needs = nil, 0
	seen := map[store.ID]bool{}
	for _, n := range needs {
		state := store.State(0)
		needed := w.ids[n.Task]
		if needed != nil {
			state = needed.State
		}
		open := !n.Met(state) && !seen[n.Task]
		seen[n.Task] = true
		r.needing = append(r.needing, openNeed{n, open})
		if !open {
			continue
		}
		r.needs++
		r.doomed = r.doomed || n.Dooms(state)
		if needed != nil && !needed.needed {
			needed.needed = true
			w.flags = append(w.flags, needed)
		}
	}
}

// openNeed is a need, and whether it is still open.
type openNeed struct {
	store.Need
	open bool
}

// flag tells the tasks that are needed so: the end of others is not looked at by
// anybody.
func (w *work) flag() {
	refs := make([]ref, 0, len(w.flags))
	for _, r := range w.flags {
		refs = append(refs, ref{r.place, r.n, 0})
	}
	w.flags = nil
	inParts(apart(refs), maxSpans, func(part []span) error {
		text, args := among("need.flag", part)
		w.do(text, args...)
		return nil
	})
}

// insertNeeds stores what a task needs.
func (w *work) insertNeeds(r *row) {
	for from, part := range enumerate(r.needing, 500) {
		var args []any
		for i, n := range part {
			args = append(args, r.place, r.n, from+i, n.Task[:], n.OnFailure, n.open)
		}
		w.do(list("need.insert", "(?, ?, ?, ?, ?, ?)", len(part)), args...)
	}
	if r.doomed {
		w.do(q("doomed.add"), r.place, r.n)
	}
}

// enumerate cuts a slice into parts, each with the index of its first item.
func enumerate[T any](items []T, size int) func(yield func(int, []T) bool) {
	return func(yield func(int, []T) bool) {
		for from := 0; from < len(items); from += size {
			if !yield(from, items[from:min(from+size, len(items))]) {
				return
			}
		}
	}
}

// needAnew has a task wait for what it needs as that is now.
func (w *work) needAnew(r *row, needs []store.Need) {
	w.drop("need.clear", []ref{{r.place, r.n, 0}})
	w.need(r, needs)
	w.insertNeeds(r)
}

// parents finds the tasks of ids, without locking them.
func (w *work) parents(ids map[store.ID]bool) (found []ref, err error) {
	var args []any
	for id := range ids {
		args = append(args, id[:])
	}
	err = w.locate(args, func(r ref, _ store.ID, _ store.State, _ name) { found = append(found, ref{r.place, r.n, 0}) })
	return found, err
}

// needsOf reads what tasks need.
func (w *work) needsOf(refs []ref) (map[ref][]openNeed, error) {
	found := map[ref][]openNeed{}
	err := inParts(spansOf(refs), maxSpans, func(part []span) error {
		text, args := among("need.of", part)
		return w.ask(func(rows *sql.Rows) error {
			var r ref
			var n openNeed
			var id []byte
			err := rows.Scan(&r.place, &r.n, &id, &n.OnFailure, &n.open)
			copy(n.Task[:], id)
			found[r] = append(found[r], n)
			return err
		}, text, args...)
	})
	return found, err
}

// tell lets the tasks that need some know that those have ended; a state of 0:
// that they are gone.
func (w *work) tell(ended map[store.ID]store.State) error {
	var ids []any
	for id := range ended {
		ids = append(ids, id[:])
	}
	type told struct {
		child ref
		store.Need
	}
	var all []told
	which := "need.children"
	if w.user {
		which = "need.children locked"
	}
	err := inParts(ids, 500, func(part []any) error {
		return w.ask(func(rows *sql.Rows) error {
			var t told
			var id []byte
			err := rows.Scan(&t.child.place, &t.child.n, &id, &t.OnFailure)
			copy(t.Task[:], id)
			all = append(all, t)
			return err
		}, list(which, "?", len(part)), part...)
	})
	if err != nil || len(all) == 0 {
		return err
	}
	var unknown []ref
	for _, t := range all {
		if w.rows[t.child] == nil {
			unknown = append(unknown, t.child)
		}
	}
	if err := w.lockMore(unknown); err != nil {
		return err
	}
	changed := map[*row]bool{}
	for _, t := range all {
		c := w.rows[t.child]
		if c == nil {
			continue // deleted meanwhile
		}
		switch state := ended[t.Task]; {
		case t.Met(state):
			w.do(q("need.met"), c.place, c.n, t.Task[:])
			c.needs--
			changed[c] = true
		case t.Dooms(state):
			w.do(q("doomed.add"), c.place, c.n)
		}
	}
	for c := range changed {
		w.release(c)
	}
	return nil
}

// lockMore locks tasks beyond those that were locked at first. They need what the
// others end, so nobody who holds them can be waiting for those.
func (w *work) lockMore(refs []ref) error {
	rows, err := w.lockTasks(refs)
	for _, r := range rows {
		w.know(r)
	}
	return err
}

// release lets a task go on that something it needs has set free.
func (w *work) release(c *row) {
	if c.needs > 0 || c.State != store.Pending || c.awaits {
		w.save(c)
		return
	}
	was := c.labels()
	w.tally(c, -1)
	c.lap++
	w.putDue(c, store.Scheduled)
	w.save(c)
	w.changeLabels(c, was)
}

// cancelDoomed cancels up to limit pending tasks that need what has failed; those
// that need them are doomed in turn. What an open transaction holds is passed over.
func (s *Store) cancelDoomed(ctx context.Context, term int64, limit int) (cancelled int, err error) {
	first := ref{place: math.MinInt64}
	last, before := first, 0
	for cancelled < limit {
		var some []ref
		err := s.view(ctx, func(w *work) error {
			some = nil
			return w.ask(func(rows *sql.Rows) error {
				var r ref
				err := rows.Scan(&r.place, &r.n)
				some = append(some, r)
				return err
			}, q("doomed.some"), last.place, last.place, last.n, min(limit-cancelled, 100))
		})
		if err != nil || len(some) == 0 && cancelled == before {
			return cancelled, err
		}
		if len(some) == 0 { // who was doomed in turn may stand before those that doomed it
			last, before = first, cancelled
		}
		for _, at := range some {
			done := false
			last = at
			err := s.hurry(ctx, hastyTries, func(w *work) error {
				if err := w.leads(term); err != nil {
					return err
				}
				done, err = w.cancelOne(at)
				return err
			})
			if err != nil && !held(err) {
				return cancelled, err
			}
			if done {
				cancelled++
			}
		}
	}
	return cancelled, nil
}

// cancelOne cancels a task if it is pending and something that it needs has
// failed.
func (w *work) cancelOne(at ref) (bool, error) {
	found, err := w.read("task.read", []span{{at.place, at.n, at.n, 0}})
	if err != nil {
		return false, err
	}
	r := found[at]
	if r == nil {
		w.do(q("doomed.delete"), at.place, at.n)
		return false, nil
	}
	l := &locks{edited: []ref{at}}
	if r.Key != "" {
		l.keys = map[name]bool{nameOf(&r.Task): false}
	}
	if err := w.lock(l); err != nil {
		return false, err
	}
	w.do(q("doomed.delete"), at.place, at.n)
	if r = w.rows[at]; r == nil || r.State != store.Pending || r.awaits {
		return false, nil
	}
	reason, err := w.failure(r)
	if err != nil || reason == "" {
		return false, err
	}
	was := r.labels()
	w.take(r)
	r.Reason = reason
	return true, w.cancel(r, was)
}

// failure says which of a task's needs has failed; empty: none has.
func (w *work) failure(r *row) (string, error) {
	at := ref{r.place, r.n, 0}
	needs, err := w.needsOf([]ref{at})
	if err != nil {
		return "", err
	}
	states, err := w.statesOf(needs[at])
	if err != nil {
		return "", err
	}
	for _, n := range needs[at] {
		if state := states[n.Task]; n.open && n.Dooms(state) {
			return n.Reason(state), nil
		}
	}
	return "", nil
}

// statesOf reads the states of needed tasks.
func (w *work) statesOf(needs []openNeed) (map[store.ID]store.State, error) {
	states := map[store.ID]store.State{}
	return states, inParts(needs, 500, func(part []openNeed) error {
		var args []any
		for _, n := range part {
			args = append(args, n.Task[:])
		}
		return w.ask(func(rows *sql.Rows) error {
			var id []byte
			var state store.State
			err := rows.Scan(&id, &state)
			if len(id) == 16 {
				states[store.ID(id)] = state
			}
			return err
		}, list("need.states", "?", len(part)), args...)
	})
}
