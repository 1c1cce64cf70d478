package mysql

import (
	"cmp"
	"database/sql"
	"slices"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// identity is what is known of a key, its row locked.
type identity struct {
	rules.Key
	at, awaitingAt ref
}

func nameOf(t *store.Task) rules.KeyName {
	return rules.KeyName{Queue: t.Queue, Tenant: t.Tenant, Key: t.Key}
}

// keyArgs are the parameters of a condition on the columns of the primary key.
func keyArgs(n rules.KeyName) []any { return []any{[]byte(n.Queue), []byte(n.Tenant), []byte(n.Key)} }

// lockKeys locks the rows of keys, in order, and makes those that are missing.
func (w *work) lockKeys(names []rules.KeyName) error {
	missing := slices.DeleteFunc(slices.Clone(names), func(n rules.KeyName) bool { return w.keys[n] != nil })
	if len(missing) == 0 {
		return nil
	}
	if w.hasty { // an insert would wait for whoever holds the key
		if err := w.lockExisting(missing); err != nil {
			return err
		}
		missing = slices.DeleteFunc(missing, func(n rules.KeyName) bool { return w.keys[n] != nil })
	}
	for _, n := range missing {
		w.do(q("key.insert"), keyArgs(n)...)
		w.lockKey(n)
	}
	w.readClock()
	return w.flush()
}

// lockExisting locks the rows of those keys that have one.
func (w *work) lockExisting(names []rules.KeyName) error {
	for _, n := range names {
		w.lockKey(n)
	}
	return w.flush()
}

// lockKey locks the row of a key with the next flush.
func (w *work) lockKey(of rules.KeyName) {
	w.buf = append(w.buf, stmt{w.locking(q("key.lock")), keyArgs(of), func(rows *sql.Rows) error {
		k := &identity{Key: rules.Key{KeyName: of}}
		var holder, awaiting, ended []byte
		var source sql.NullInt64
		err := rows.Scan(&holder, &k.at.place, &k.at.n, &awaiting, &k.awaitingAt.place, &k.awaitingAt.n, &ended, &source, &k.Tasks)
		copy(k.Holder[:], holder)
		copy(k.Awaiting[:], awaiting)
		copy(k.Ended[:], ended)
		if source.Valid {
			k.Source = nanos(source.Int64)
		}
		if w.keys == nil {
			w.keys = map[rules.KeyName]*identity{}
		}
		w.keys[of] = k
		return err
	}})
}

// writeKeys writes the keys that have changed, and deletes those without a task.
func (w *work) writeKeys(changed []rules.Key) {
	for i := range changed {
		k := w.keys[changed[i].KeyName]
		k.Key = changed[i]
		k.at, k.awaitingAt = w.placeOf(k.Holder), w.placeOf(k.Awaiting)
		if k.Tasks > 0 {
			w.do(q("key.write"), append([]any{idOrNull(k.Holder), k.at.place, k.at.n, idOrNull(k.Awaiting),
				k.awaitingAt.place, k.awaitingAt.n, idOrNull(k.Ended), nanosOrNull(k.Source), k.Tasks}, keyArgs(k.KeyName)...)...)
		}
	}
	for _, k := range w.keys {
		if k.Tasks == 0 { // the last one is gone, or the row was made in vain
			w.do(q("key.delete"), keyArgs(k.KeyName)...)
		}
	}
}

// placeOf returns where a task is that is locked; nowhere for none.
func (w *work) placeOf(id store.ID) ref {
	if r := w.ids[id]; r != nil {
		return ref{r.place, r.n, 0}
	}
	return ref{}
}

// sortedKeys returns the names of keys, each once, in the order in which they are locked.
func sortedKeys(names []rules.KeyName) []rules.KeyName {
	names = slices.DeleteFunc(names, func(n rules.KeyName) bool { return n.Key == "" })
	slices.SortFunc(names, func(a, b rules.KeyName) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Key, b.Key))
	})
	return slices.Compact(names)
}
