package mysql

import (
	"database/sql"
	"errors"
	"slices"
	"strings"

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
	spans, size := spansOf(refs), maxSpans
	if w.user {
		spans, size = apart(refs), 1
	}
	err = inParts(spans, size, func(part []span) error {
		near, args := []string(nil), []any(nil)
		for _, s := range part {
			near = append(near, "place = ? and first between ? and ? and next <= ? and last >= ?")
			args = append(args, s.place, max(s.first-maxSpan+1, 0), s.last, s.last, s.first)
		}
		w.buf = append(w.buf, stmt{strings.Replace(q(name), ":near", strings.Join(near, " or "), 1), args, collect})
		return nil
	})
	return found, errors.Join(err, w.flush())
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
	found = slices.CompactFunc(found, func(a, b *ready) bool { return byLane(a, b) == 0 })
	w.byLanes(found, func(queue string, priority int16, keys []any) {
		text := w.locking(withKeys("ready.lock", ":ready", "at, place, first", len(keys)/3))
		w.buf = append(w.buf, stmt{text, append(keys, []byte(queue), priority), func(rows *sql.Rows) error {
			y := &ready{queue: queue, priority: priority}
			err := rows.Scan(&y.at, &y.place, &y.first, &y.next, &y.last, &y.lap)
			locked = append(locked, y)
			return err
		}})
	})
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
			r, err := readLocked(rows)
			locked = append(locked, r)
			return err
		}, w.locking(text), args...)
	})
	return locked, err
}
