package mysql

import (
	"database/sql"
	"errors"
	"slices"
	"strings"

	"github.com/tuskqueue/tusk/store"
)

// find returns the rows of tusk_ready that hold tasks, without locking them. In a user's transaction, which does lock
// them, it is only called for tasks that hold a key and are the first of their place, so it locks just that row, and
// not the next one of the index.
func (w *work) find(refs []ref) (found []*ready, err error) {
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
		text := strings.Replace(q("ready.find"), ":near", strings.Join(near, " or "), 1)
		w.buf = append(w.buf, stmt{w.current(text), args, collect})
		return nil
	})
	return found, errors.Join(err, w.flush())
}

// lockRows locks tasks. For listed tasks it first locks their rows of tusk_ready.
func (w *work) lockRows(listed, others []ref) error {
	slices.SortFunc(listed, byPlace)
	listed = slices.Compact(listed)
	if len(listed)+len(others) == 0 {
		return nil
	}
	w.limitWaits()
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
	at := byReady(found)
	for _, r := range rows {
		w.know(r)
	}
	var doubtful []ref
	for _, task := range listed {
		r := w.rows[task]
		if r == nil {
			continue
		}
		r.ready = at.of(r)
		if r.running() {
			r.State = store.Running
			doubtful = append(doubtful, task)
		}
	}
	if len(doubtful) > 0 {
		if late, err := w.find(doubtful); err != nil || len(late) > 0 {
			return errors.Join(err, errAgain)
		}
	}
	return nil
}

// readyRows holds rows of tusk_ready by the places of their tasks.
type readyRows map[int64][]*ready

func byReady(found []*ready) readyRows {
	at := readyRows{}
	for _, y := range found {
		at[y.place] = append(at[y.place], y)
	}
	return at
}

// of returns the row that lists a task, or nil if none does.
func (at readyRows) of(r *row) *ready {
	for _, y := range at[r.place] {
		if y.next <= r.n && r.n <= y.last {
			return y
		}
	}
	return nil
}

// tellRunning finds out which of the tasks that were read without a lock are available. The others that look available
// are running.
func (w *work) tellRunning(rows []*row) error {
	var refs []ref
	for _, r := range rows {
		if r.State == store.Available {
			refs = append(refs, r.ref)
		}
	}
	found, err := w.find(refs)
	at := byReady(found)
	for _, r := range rows {
		r.ready = at.of(r)
	}
	return err
}

// know remembers a row that is locked or new.
func (w *work) know(r *row) {
	if w.rows == nil {
		w.rows, w.ids = map[ref]*row{}, map[store.ID]*row{}
	}
	w.rows[r.anyLap()] = r
	w.ids[r.ID] = r
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
	for part := range slices.Chunk(apart(slices.Compact(refs)), maxSpans) {
		text, args := among("task.lock", part)
		w.buf = append(w.buf, stmt{w.locking(text), args, func(rows *sql.Rows) error {
			r, err := readLocked(rows)
			locked = append(locked, r)
			return err
		}})
	}
	w.readClock()
	return locked, w.flush()
}
