package mysql

import (
	"database/sql"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// decide lets the rules decide what follows from an operation, and writes it.
func (w *work) decide(verb func(*rules.Batch) error) error {
	w.batch = rules.New(instant(w.now), w)
	if err := verb(w.batch); err != nil {
		return err
	}
	return w.apply(w.batch)
}

// Read implements rules.Source. It locks in the common order: keys, rows of tusk_ready, tasks. It locks the tasks of
// keys together with the wanted tasks, because the rules request them next. What was read then stays true until the
// commit, except that available tasks may be claimed, unless they hold a key or are edited.
func (w *work) Read(want *rules.Want) (*rules.Found, error) {
	found := &rules.Found{}
	if err := w.lockKeys(want.Keys); err != nil {
		return nil, err
	}
	for _, name := range want.Keys {
		if k := w.keys[name]; k != nil {
			found.Keys = append(found.Keys, k.Key)
		}
	}
	if err := w.lockWanted(want.Tasks); err != nil {
		return nil, err
	}
	// In case there was nothing to lock.
	if _, err := w.clock(); err != nil {
		return nil, err
	}
	w.batch.Now = instant(w.now)
	for _, id := range want.Tasks {
		if r := w.ids[id]; r != nil && !(r.State.Finished() && w.dropping.have(r.place)) {
			found.Tasks = append(found.Tasks, &r.Row)
		}
	}
	if err := w.readNeeds(want.Needs, found); err != nil {
		return nil, err
	}
	return found, w.readChildren(want.Children, found)
}

// lockWanted locks the tasks, and the tasks of the locked keys.
func (w *work) lockWanted(ids []store.ID) error {
	var listed, others []ref
	choose := func(id store.ID, at ref) {
		switch {
		case id.IsZero() || w.ids[id] != nil:
		case w.exact[id] && w.lent[id] == nil:
			listed = append(listed, at)
		default:
			others = append(others, at)
		}
	}
	for _, k := range w.keys {
		w.beExact(k.Holder)
		choose(k.Holder, k.at)
		choose(k.Awaiting, k.awaitingAt)
	}
	if err := w.locateMore(ids); err != nil {
		return err
	}
	for _, id := range ids {
		if at, known := w.where[id]; known {
			choose(id, at)
		}
	}
	if len(listed)+len(others) == 0 {
		return nil
	}
	if err := w.lockRows(listed, others); err != nil {
		return err
	}
	return w.lend()
}

// lend sets the lease and the worker of tasks that are requested by their leases. A task that was handed back since
// may be available again.
func (w *work) lend() error {
	var back, stoppable []ref
	for id, a := range w.lent {
		r := w.ids[id]
		if r == nil || r.State != store.Available || r.ready != nil {
			continue
		}
		if r.lap == a.lap {
			l := lease{token: a.token, worker: a.worker, claimedAt: a.claimedAt}
			r.Task = r.lent(&l)
			if a.stoppable {
				stoppable = append(stoppable, r.anyLap())
			}
		} else if w.exact[id] {
			back = append(back, r.anyLap())
		}
	}
	if err := w.lockRows(back, nil); err != nil {
		return err
	}
	return w.stopped(stoppable)
}

// beExact requires that, before the tasks are locked, it be determined whether they are available or running.
func (w *work) beExact(ids ...store.ID) {
	if w.exact == nil {
		w.exact = map[store.ID]bool{}
	}
	for _, id := range ids {
		w.exact[id] = true
	}
}

// locateMore finds out where tasks are, unless that is known.
func (w *work) locateMore(ids []store.ID) error {
	var args []any
	for _, id := range ids {
		if _, known := w.where[id]; !known && w.ids[id] == nil {
			args = append(args, id[:])
		}
	}
	return w.locate(args, func(r ref, id store.ID, _ store.State, _ rules.KeyName) { w.isAt(id, r) })
}

// isAt remembers where a task is.
func (w *work) isAt(id store.ID, r ref) {
	if w.where == nil {
		w.where = map[store.ID]ref{}
	}
	w.where[id] = r.anyLap()
}

// readNeeds reads what tasks need.
func (w *work) readNeeds(ids []store.ID, found *rules.Found) error {
	var refs []ref
	for _, id := range ids {
		if r := w.ids[id]; r != nil {
			refs = append(refs, r.anyLap())
		}
	}
	return w.needsOf(refs, func(at ref, n rules.OpenNeed) {
		found.Needs = append(found.Needs, rules.OwnNeed{Child: w.rows[at].ID, OpenNeed: n})
	})
}

// readChildren reads which tasks wait for the given ones, and locks them. A transaction that holds a child cannot be
// waiting for a task that the child needs, so this cannot deadlock.
func (w *work) readChildren(ids []store.ID, found *rules.Found) error {
	type edge struct {
		child ref
		store.Need
	}
	var edges []edge
	err := inParts(ids, 500, func(part []store.ID) error {
		return w.ask(func(rows *sql.Rows) error {
			var e edge
			var id []byte
			err := rows.Scan(&e.child.place, &e.child.n, &id, &e.OnFailure)
			copy(e.Task[:], id)
			edges = append(edges, e)
			return err
		}, w.current(list("need.children", "?", len(part))), idArgs(part)...)
	})
	if err != nil || len(edges) == 0 {
		return err
	}
	var unknown []ref
	for _, e := range edges {
		if w.rows[e.child] == nil {
			unknown = append(unknown, e.child)
		}
	}
	if err := w.lockRows(nil, unknown); err != nil {
		return err
	}
	for _, e := range edges {
		if c := w.rows[e.child]; c != nil { // it was not deleted meanwhile
			found.Children = append(found.Children, rules.Edge{Child: c.ID, Need: e.Need})
		}
	}
	return nil
}

// idArgs returns ids as arguments of a statement.
func idArgs(ids []store.ID) []any {
	args := make([]any, len(ids))
	for i := range ids {
		args[i] = ids[i][:]
	}
	return args
}

// readClock adds a query for the time, which is read after the locks of the next query.
func (w *work) readClock() {
	w.buf = append(w.buf, stmt{q("clock"), nil, func(rows *sql.Rows) error { return rows.Scan(&w.now) }})
}
