package mysql

import (
	"cmp"
	"database/sql"
	"slices"
	"strings"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// identity is what is known about a key whose row is locked.
type identity struct {
	rules.Key
	at, awaitingAt ref
}

func nameOf(t *store.Task) rules.KeyName {
	return rules.KeyName{Queue: t.Queue, Tenant: t.Tenant, Key: t.Key}
}

// amongKeys replaces :keys in a statement by a list of keys.
func amongKeys(statement string, names []rules.KeyName) (text string, args []any) {
	const one = "select cast(? as binary) as queue, cast(? as binary) as tenant, cast(? as binary) as tkey"
	return strings.Replace(q(statement), ":keys", one+strings.Repeat(" union all "+one, len(names)-1), 1), keyArgs(names)
}

func keyArgs(names []rules.KeyName) (args []any) {
	for _, n := range names {
		args = append(args, []byte(n.Queue), []byte(n.Tenant), []byte(n.Key))
	}
	return args
}

// lockKeys locks the rows of keys, in order, and adds missing ones.
func (w *work) lockKeys(names []rules.KeyName) error {
	missing := slices.DeleteFunc(slices.Clone(names), func(n rules.KeyName) bool { return w.keys[n] != nil })
	if w.hasty { // an insert would wait for the transaction that holds the key
		if err := w.lockExisting(missing); err != nil {
			return err
		}
		missing = slices.DeleteFunc(missing, func(n rules.KeyName) bool { return w.keys[n] != nil })
	}
	if len(missing) == 0 {
		return nil
	}
	w.limitWaits()
	w.insertValues("key.insert", "(?, ?, ?)", keyArgs(missing))
	return w.lockExisting(missing)
}

// lockExisting locks the rows of those keys that have one, and reads the time.
func (w *work) lockExisting(names []rules.KeyName) error {
	if len(names) == 0 {
		return nil
	}
	for part := range slices.Chunk(names, maxSpans) {
		text, args := amongKeys("key.lock", part)
		w.buf = append(w.buf, stmt{w.locking(text), args, w.readKey})
	}
	w.readClock()
	return w.flush()
}

// readKey reads a row of key.lock.
func (w *work) readKey(rows *sql.Rows) error {
	k := &identity{}
	var queue, tenant, key, holder, awaiting, ended []byte
	var source sql.NullInt64
	err := rows.Scan(&queue, &tenant, &key, &holder, &k.at.place, &k.at.n, &awaiting, &k.awaitingAt.place,
		&k.awaitingAt.n, &ended, &source, &k.Tasks)
	k.KeyName = rules.KeyName{Queue: string(queue), Tenant: string(tenant), Key: string(key)}
	copy(k.Holder[:], holder)
	copy(k.Awaiting[:], awaiting)
	copy(k.Ended[:], ended)
	if source.Valid {
		k.Source = nanos(source.Int64)
	}
	if w.keys == nil {
		w.keys = map[rules.KeyName]*identity{}
	}
	w.keys[k.KeyName] = k
	return err
}

// writeKeys writes the keys that have changed, and deletes keys without tasks.
func (w *work) writeKeys(changed []rules.Key) {
	var rows []any
	for i := range changed {
		k := w.keys[changed[i].KeyName]
		k.Key = changed[i]
		k.at, k.awaitingAt = w.placeOf(k.Holder), w.placeOf(k.Awaiting)
		if k.Tasks > 0 {
			rows = append(append(rows, keyArgs([]rules.KeyName{k.KeyName})...), idOrNull(k.Holder), k.at.place, k.at.n,
				idOrNull(k.Awaiting), k.awaitingAt.place, k.awaitingAt.n, idOrNull(k.Ended), nanosOrNull(k.Source), k.Tasks)
		}
	}
	w.insertValues("key.write", "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
	var gone []rules.KeyName
	for _, k := range w.keys {
		// Its last task was deleted, or the row was added but not needed.
		if k.Tasks == 0 {
			gone = append(gone, k.KeyName)
		}
	}
	for part := range slices.Chunk(sortedKeys(gone), maxSpans) {
		text, args := amongKeys("key.delete", part)
		w.do(text, args...)
	}
}

// placeOf returns where a locked task is, or the zero ref if it is not locked.
func (w *work) placeOf(id store.ID) ref {
	if r := w.ids[id]; r != nil {
		return r.anyLap()
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
