package mysql

import (
	"database/sql"
	"errors"
	"slices"

	"github.com/tuskqueue/tusk/store"
)

// find returns the rows of tusk_ready that hold tasks, without locking them. In
// a user's transaction they are locked: what it sees otherwise may be old. All that it
// asks for hold a key and are the first of their place: it locks that one row, and not
// the next one of the index.
func (w *work) find(refs []ref) (found []*ready, err error) {
	name := "ready.find"
	if w.user {
		name = "ready.find locked"
	}
	collect := func(rows *sql.Rows) error {
		y, err := readReady(rows)
		found = append(found, y)
		return err
	}
	for _, r := range refs {
		w.buf = append(w.buf, stmt{q(name), []any{r.place, max(r.n-maxSpan+1, 0), r.n, r.n, r.n}, collect})
	}
	return found, w.flush()
}

// locks says what a transaction will judge by.
type locks struct {
	tasks    []store.NewTask   // to be enqueued: their keys, who holds those, and what they need
	outcomes []*end            // their tasks, those of their keys, and what comes with them
	edited   []ref             // tasks to be edited
	keys     map[name]bool     // keys by themselves; true: make those that are missing
	needed   map[store.ID]bool // tasks that are needed
}

// lock takes all locks of a transaction in the order that everybody keeps: keys,
// rows of tusk_ready, tasks. What w.keys and w.rows say then stays true until the
// commit, but for what is available: that may be claimed unless its row of
// tusk_ready is locked, which is so for tasks that hold a key or are edited.
func (w *work) lock(l *locks) error {
	w.rows, w.ids = map[ref]*row{}, map[store.ID]*row{}
	if l.keys == nil {
		l.keys = map[name]bool{}
	}
	if l.needed == nil {
		l.needed = map[store.ID]bool{}
	}
	l.include(l.tasks)
	for _, e := range l.outcomes {
		if of := nameOf(e.Task); of.key != "" {
			if !l.keys[of] {
				l.keys[of] = false // known to be touched
			}
		}
		l.include(e.Then)
		for _, n := range e.Needs {
			l.needed[n.Task] = true
		}
	}
	var err error
	if w.keys, err = w.lockKeys(l.keys); err != nil {
		return err
	}
	listed, others := l.edited, []ref(nil)
	for _, is := range w.keys {
		if !is.task.IsZero() {
			listed = append(listed, is.at)
		}
		if !is.awaiting.IsZero() {
			others = append(others, is.awaitingAt)
		}
	}
	for _, e := range l.outcomes {
		others = append(others, ref{e.place, e.n, 0})
	}
	found, err := w.parents(l.needed)
	if err != nil {
		return err
	}
	return w.lockRows(listed, append(others, found...))
}

// include adds what the enqueue of tasks has to lock.
func (l *locks) include(tasks []store.NewTask) {
	for i := range tasks {
		if n := &tasks[i]; n.Key != "" {
			l.keys[name{n.Queue, n.Tenant, n.Key}] = true
		}
		for _, n := range tasks[i].Needs {
			l.needed[n.Task] = true
		}
	}
}

// lockRows locks tasks, and of those that are listed the rows of tusk_ready
// before.
func (w *work) lockRows(listed, others []ref) error {
	slices.SortFunc(listed, byPlace)
	listed = slices.Compact(listed)
	if len(listed)+len(others) == 0 {
		return nil
	}
	found, err := w.find(listed)
	if err != nil {
		return err
	}
	if found, err = w.lockReady(found); err != nil {
		return err
	}
	rows, err := w.lockTasks(append(others, listed...))
	if err != nil {
		return err
	}
	for _, r := range rows {
		w.know(r)
	}
	var doubtful []ref
	for _, at := range listed {
		r := w.rows[at]
		if r == nil {
			continue
		}
		for _, y := range found {
			if y.place == r.place && y.next <= r.n && r.n <= y.last {
				r.ready = y
			}
		}
		if r.running() {
			doubtful = append(doubtful, at)
		}
	}
	if len(doubtful) > 0 {
		if late, err := w.find(doubtful); err != nil || len(late) > 0 {
			return errors.Join(err, errAgain)
		}
	}
	return nil
}

// know remembers a row that is locked, or new.
func (w *work) know(r *row) {
	if w.rows != nil {
		w.rows[ref{r.place, r.n, 0}] = r
		w.ids[r.ID] = r
	}
}

// lockReady locks rows of tusk_ready and returns those that still exist.
func (w *work) lockReady(found []*ready) (locked []*ready, err error) {
	slices.SortFunc(found, byLane)
	for i, y := range found {
		if i > 0 && byLane(found[i-1], y) == 0 {
			continue
		}
		w.buf = append(w.buf, stmt{w.locking(q("ready.lock")), y.key(), func(rows *sql.Rows) error {
			locked = append(locked, y)
			return rows.Scan(&y.next, &y.last, &y.lap)
		}})
	}
	return locked, w.flush()
}

// lockTasks locks tasks in the order of their places.
func (w *work) lockTasks(refs []ref) (locked []*row, err error) {
	refs = slices.Clone(refs)
	for i := range refs {
		refs[i].lap = 0
	}
	slices.SortFunc(refs, byPlace)
	err = inParts(apart(slices.Compact(refs)), maxSpans, func(part []span) error {
		text, args := among("task.lock", part)
		return w.ask(func(rows *sql.Rows) error {
			r, err := readRow(rows)
			locked = append(locked, r)
			return err
		}, w.locking(text), args...)
	})
	return locked, err
}
