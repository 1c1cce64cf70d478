package mysql

import (
	"cmp"
	"database/sql"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// name is what a key is unique by: it belongs to its tenant.
type name struct{ queue, tenant, key string }

func nameOf(t *store.Task) name { return name{t.Queue, t.Tenant, t.Key} }

// args are the parameters of a condition on the columns of the primary key.
func (n name) args() []any { return []any{[]byte(n.queue), []byte(n.tenant), []byte(n.key)} }

func byName(a, b name) int {
	return cmp.Or(strings.Compare(a.queue, b.queue), strings.Compare(a.tenant, b.tenant), strings.Compare(a.key, b.key))
}

// identity is what is known of a key, its row locked.
type identity struct {
	name
	task, awaiting store.ID // zero: none
	at, awaitingAt ref
	ended          store.ID      // the task that ended last; zero: none has, or it is deleted
	over           bool          // a task of the key has ended
	source         sql.NullInt64 // the newest one seen, in nanoseconds
	changed        bool
}

// lockKeys locks the rows of keys, in order, and makes those that are missing
// where it is told to.
func (w *work) lockKeys(names map[name]bool) (map[name]*identity, error) {
	known := map[name]*identity{}
	sorted := slices.SortedFunc(maps.Keys(names), byName)
	if w.hasty { // an insert would wait for whoever holds the key
		if err := w.lockExisting(sorted, known); err != nil {
			return nil, err
		}
		sorted = slices.DeleteFunc(sorted, func(of name) bool { return known[of] != nil || !names[of] })
	}
	for _, of := range sorted {
		if names[of] {
			w.do(q("key.insert"), of.args()...)
		}
		w.lockKey(of, known)
	}
	return known, w.flush()
}

// lockExisting locks the rows of those keys that have one.
func (w *work) lockExisting(names []name, known map[name]*identity) error {
	for _, of := range names {
		w.lockKey(of, known)
	}
	return w.flush()
}

// lockKey locks the row of a key with the next flush.
func (w *work) lockKey(of name, known map[name]*identity) {
	w.buf = append(w.buf, stmt{w.locking(q("key.lock")), of.args(), func(rows *sql.Rows) error {
		is := &identity{name: of}
		var task, awaiting, ended []byte
		err := rows.Scan(&task, &is.at.place, &is.at.n, &awaiting, &is.awaitingAt.place, &is.awaitingAt.n, &ended, &is.source)
		copy(is.task[:], task)
		copy(is.awaiting[:], awaiting)
		copy(is.ended[:], ended)
		is.over = ended != nil
		known[of] = is
		return err
	}})
}

// saveKeys writes the keys that changed.
func (w *work) saveKeys(known map[name]*identity) {
	for _, is := range known {
		if is.changed {
			w.do(q("key.write"), append([]any{idOrNull(is.task), is.at.place, is.at.n, idOrNull(is.awaiting),
				is.awaitingAt.place, is.awaitingAt.n, is.endedOrNull(), is.source}, is.args()...)...)
			is.changed = false
		}
	}
}

// endedOrNull is what the column has: zeros for a task that is deleted.
func (is *identity) endedOrNull() any {
	if !is.over {
		return nil
	}
	return is.ended[:]
}

// learn takes note of a source time and reports whether it is news. A zero one
// always is, and counts as now.
func (is *identity) learn(source time.Time, now int64) bool {
	newer := now * 1000
	if !source.IsZero() {
		newer = source.UnixNano()
	}
	if is.source.Valid && newer <= is.source.Int64 {
		return source.IsZero()
	}
	is.source = sql.NullInt64{Int64: newer, Valid: true}
	is.changed = true
	return true
}

// standsFor returns the task that brings, or has brought, what a stale enqueue
// asked for.
func (is *identity) standsFor() store.ID {
	switch {
	case !is.awaiting.IsZero():
		return is.awaiting
	case !is.task.IsZero():
		return is.task
	}
	return is.ended
}

func (is *identity) holds(r *row) {
	is.task, is.at, is.changed = r.ID, ref{r.place, r.n, 0}, true
}

func (is *identity) awaits(r *row) {
	is.awaiting, is.awaitingAt, is.changed = r.ID, ref{r.place, r.n, 0}, true
}

// ends notes that what holds the key has ended.
func (is *identity) ends() { is.ended, is.over, is.changed = is.task, true, true }

// forgets notes that a task is deleted, which may have been the last to end.
func (is *identity) forgets(id store.ID) {
	if is.ended == id {
		is.ended, is.changed = store.ID{}, true
	}
}

// free ends what holds a key, and returns the place of the rerun that has been
// waiting for that.
func (is *identity) free() (awaiting ref, any bool) {
	awaiting, any = is.awaitingAt, !is.awaiting.IsZero()
	is.task, is.at = store.ID{}, ref{}
	is.awaiting, is.awaitingAt = store.ID{}, ref{}
	is.changed = true
	return awaiting, any
}

// forgetKeysOf is forgetKeys after tasks were deleted.
func (w *work) forgetKeysOf(deleted []*row, known map[name]*identity) error {
	for _, r := range deleted {
		if is := known[nameOf(&r.Task)]; is != nil {
			is.forgets(r.ID)
		}
	}
	return w.forgetKeys(known)
}

// forgetKeys deletes the keys that have no task left, in a transaction that has
// locked them.
func (w *work) forgetKeys(known map[name]*identity) error {
	w.saveKeys(known)
	for _, is := range known {
		if !is.task.IsZero() {
			continue
		}
		used := false
		err := w.ask(func(*sql.Rows) error { used = true; return nil }, q("key.used"), []byte("k"+is.key), []byte(is.queue), textOrNull(is.tenant))
		if err != nil {
			return err
		}
		if !used {
			w.do(q("key.delete"), is.args()...)
		}
	}
	return nil
}
