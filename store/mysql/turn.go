package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"slices"

	"github.com/tuskqueue/tusk/store"
)

// queueUp puts a pending task in line for its turn.
func (w *work) queueUp(r *row) {
	w.do(q("turn.insert"), r.place, r.n, r.ID[:], []byte(r.Queue), []byte(r.Tenant), []byte(r.Partition), false, r.Priority, w.now+w.covered)
	w.covered++
}

// yield gives a task's turn back, if it has one.
func (w *work) yield(r *row) {
	if r.turn == holdsTurn {
		r.turn = takesTurn
		w.do(q("turn.delete"), r.place, r.n)
	}
}

// queues reports whether a pending task waits for its turn and for nothing else.
func (r *row) queues() bool {
	return r.State == store.Pending && r.turn == takesTurn && r.needs == 0 && !r.awaits
}

// line is what turns are counted by.
type line struct{ queue, tenant, partition string }

// Turns implements store.Keeper.
func (s *Store) Turns(ctx context.Context, term int64, groups, heads int) (all []store.Turns, err error) {
	err = s.write(ctx, func(w *work) error {
		if err := w.leads(term); term != 0 && err != nil {
			return err
		}
		all, err = w.turns(groups, heads)
		return err
	})
	if err != nil {
		return nil, wrap("turns", err)
	}
	return all, nil
}

func (w *work) turns(groups, heads int) (all []store.Turns, err error) {
	held := map[line]int64{}
	read := func(rows *sql.Rows, n *int64) (line, error) {
		var queue, tenant, partition []byte
		err := rows.Scan(&queue, &tenant, &partition, n)
		return line{string(queue), string(tenant), string(partition)}, err
	}
	err = w.ask(func(rows *sql.Rows) error {
		var n int64
		of, err := read(rows, &n)
		held[of] = n
		return err
	}, q("turn.holders"))
	if err != nil {
		return nil, err
	}
	err = w.ask(func(rows *sql.Rows) error {
		var since int64
		of, err := read(rows, &since)
		all = append(all, store.Turns{Queue: of.queue, Tenant: of.tenant, Partition: of.partition, Held: held[of]})
		delete(held, of)
		return err
	}, q("turn.groups"), max(groups, 0))
	if err != nil {
		return nil, err
	}
	for i := range all {
		t := &all[i]
		w.buf = append(w.buf, stmt{q("turn.heads"), []any{[]byte(t.Queue), []byte(t.Tenant), []byte(t.Partition), max(heads, 0)}, func(rows *sql.Rows) error {
			var id []byte
			err := rows.Scan(&id)
			if len(id) == 16 {
				t.Waiting = append(t.Waiting, store.ID(id))
			}
			return err
		}})
	}
	if err := w.flush(); err != nil {
		return nil, err
	}
	var others []store.Turns
	for of, n := range held {
		others = append(others, store.Turns{Queue: of.queue, Tenant: of.tenant, Partition: of.partition, Held: n})
	}
	slices.SortFunc(others, func(a, b store.Turns) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Partition, b.Partition))
	})
	return append(all, others...), nil
}

// Grant implements store.Keeper.
func (s *Store) Grant(ctx context.Context, term int64, ids []store.ID) (granted int, err error) {
	err = inParts(ids, maxAdmitted, func(part []store.ID) error {
		n := 0
		err := s.write(ctx, func(w *work) error {
			if err := w.leads(term); err != nil {
				return err
			}
			n, err = w.grant(part)
			return err
		})
		granted += n
		return err
	})
	if len(ids) == 0 {
		err = s.write(ctx, func(w *work) error { return w.leads(term) })
	}
	return granted, wrap("grant", err)
}

func (w *work) grant(ids []store.ID) (granted int, err error) {
	needed := map[store.ID]bool{}
	for _, id := range ids {
		needed[id] = true
	}
	refs, err := w.parents(needed)
	if err != nil {
		return 0, err
	}
	w.rows, w.ids = map[ref]*row{}, map[store.ID]*row{}
	if err := w.lockRows(nil, refs); err != nil {
		return 0, err
	}
	for _, id := range ids {
		r := w.ids[id]
		if r == nil || !r.queues() {
			continue
		}
		was := r.labels()
		w.tally(r, -1)
		r.turn, r.RunAt = holdsTurn, instant(w.now)
		w.put(r, store.Available)
		w.save(r)
		w.do(q("turn.hold"), r.place, r.n)
		w.changeLabels(r, was)
		granted++
	}
	return granted, nil
}
