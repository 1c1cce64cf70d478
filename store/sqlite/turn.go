package sqlite

import (
	"context"

	"github.com/tuskqueue/tusk/store"
)

// turn is what turns are counted by.
type turn struct{ queue, tenant, partition string }

// turns is a row of tusk_turn: what this call has changed about it.
type turns struct {
	id      int64
	held    int64 // turns given, less those given back
	changed bool
}

// turnsOf returns the row of a turn, and makes it if it is new.
func (w *work) turnsOf(of turn) (*turns, error) {
	if g, ok := w.turns[of]; ok {
		return g, nil
	}
	r, err := w.one("turn.find", of.queue, of.tenant, of.partition)
	if err != nil {
		return nil, err
	}
	if r == nil {
		w.wrote = true
		if r, err = w.one("turn.add", of.queue, of.tenant, of.partition); err != nil {
			return nil, err
		}
	}
	if w.turns == nil {
		w.turns = map[turn]*turns{}
	}
	g := &turns{id: r.int(0)}
	w.turns[of] = g
	return g, nil
}

// queueUp puts a pending task in line for its turn.
func (w *work) queueUp(id store.ID, of turn, priority int16) error {
	g, err := w.turnsOf(of)
	if err != nil {
		return err
	}
	g.changed = true
	_, err = w.run("line.add", g.id, priority, id)
	return err
}

// leave takes a task out of the line and reports whether it was in it.
func (w *work) leave(t *stored) (bool, error) {
	n, err := w.run("line.drop", t.ID)
	if err != nil || n == 0 {
		return false, err
	}
	g, err := w.turnsOf(turn{t.Queue, t.Tenant, t.Partition})
	if err != nil {
		return false, err
	}
	g.changed = true
	return true, nil
}

// yield gives a task's turn back, if it has one.
func (w *work) yield(t *stored) error {
	if !t.holds {
		return nil
	}
	t.holds = false
	return w.giveBack(&t.Task)
}

func (w *work) giveBack(t *store.Task) error {
	n, err := w.run("turn.yield", t.ID)
	if err != nil || n == 0 {
		return err
	}
	g, err := w.turnsOf(turn{t.Queue, t.Tenant, t.Partition})
	if err != nil {
		return err
	}
	g.held--
	g.changed = true
	return nil
}

// flushTurns writes what this call has changed about turns, and forgets those
// that nobody has and nobody waits for.
func (w *work) flushTurns() error {
	for _, g := range w.turns {
		if !g.changed {
			continue
		}
		w.wrote = true
		r, err := w.one("turn.write", g.held, g.id)
		if err != nil {
			return err
		}
		if r != nil && r.int(0) == 0 && r.null(1) {
			if _, err := w.run("turn.drop", g.id); err != nil {
				return err
			}
		}
	}
	return nil
}

// Turns implements store.Keeper. It reads no more rows than it returns.
func (s *Store) Turns(ctx context.Context, term int64, groups, heads int) (all []store.Turns, err error) {
	err = s.read(ctx, func(ctx context.Context, c session) error {
		if err := leads(ctx, c, term, s.clock.now()); err != nil {
			return err
		}
		all, err = readTurns(ctx, c, groups, heads)
		return err
	})
	return all, wrap("turns", err)
}

func readTurns(ctx context.Context, c session, groups, heads int) ([]store.Turns, error) {
	all := []store.Turns{}
	var ids []int64
	told := map[int64]bool{}
	add := func(r row) error {
		if id := r.int(0); !told[id] {
			told[id] = true
			ids = append(ids, id)
			all = append(all, store.Turns{Queue: r.text(1), Tenant: r.text(2), Partition: r.text(3), Held: r.int(4)})
		}
		return nil
	}
	if err := c.each(ctx, "turn.waiting", add, groups); err != nil {
		return nil, err
	}
	for i, id := range ids {
		err := c.each(ctx, "line.heads", func(r row) error {
			all[i].Waiting = append(all[i].Waiting, r.id(0))
			return nil
		}, id, heads)
		if err != nil {
			return nil, err
		}
	}
	return all, c.each(ctx, "turn.held", add)
}

// Grant implements store.Keeper.
func (s *Store) Grant(ctx context.Context, term int64, ids []store.ID) (granted int, err error) {
	err = s.write(ctx, true, func(w *work) error {
		granted = 0
		if err := leads(w.ctx, w.session, term, w.now); err != nil {
			return err
		}
		for _, id := range ids {
			did, err := w.grant(id)
			if err != nil {
				return err
			}
			if did {
				granted++
			}
		}
		return nil
	})
	if err != nil {
		return 0, wrap("grant", err)
	}
	return granted, nil
}

// grant gives a task its turn if it waits for it, and for nothing else.
func (w *work) grant(id store.ID) (bool, error) {
	t, err := w.find(id)
	if err != nil || t == nil || t.State != store.Pending || !t.Turn {
		return false, err
	}
	if was, err := w.leave(t); !was || err != nil {
		return false, err
	}
	g, err := w.turnsOf(turn{t.Queue, t.Tenant, t.Partition})
	if err != nil {
		return false, err
	}
	g.held++
	t.holds = true
	if _, err := w.run("turn.hold", t.num); err != nil {
		return false, err
	}
	if err := w.take(t); err != nil {
		return false, err
	}
	return true, w.putAvailable(t, t.Queue, t.Priority, w.now)
}
