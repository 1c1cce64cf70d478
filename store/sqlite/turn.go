package sqlite

import (
	"cmp"
	"context"
	"slices"

	"github.com/tuskqueue/tusk/store"
)

// turn is what turns are counted by.
type turn struct{ queue, tenant, partition string }

// turns is what this call has changed about a row of tusk_turn.
type turns struct {
	queue string // when it had to be known
	held  int64  // turns given
	first int64  // position of the first that came to wait; 0: nobody came
	left  bool   // somebody waits no longer
}

// turnsOf returns the row of a turn, and makes it if it is new.
func (w *work) turnsOf(of turn) (id int64, err error) {
	if id, ok := w.turnIDs[of]; ok {
		return id, nil
	}
	r, err := w.one("turn.find", of.queue, of.tenant, of.partition)
	if err != nil {
		return 0, err
	}
	if r == nil {
		w.wrote = true
		if r, err = w.one("turn.add", of.queue, of.tenant, of.partition); err != nil {
			return 0, err
		}
	}
	if w.turnIDs == nil {
		w.turnIDs = map[turn]int64{}
	}
	w.turnIDs[of] = r.int(0)
	return r.int(0), nil
}

// turn is what has changed about a row.
func (w *work) turn(id int64) *turns {
	if w.turns == nil {
		w.turns = map[int64]*turns{}
	}
	if w.turns[id] == nil {
		w.turns[id] = &turns{}
	}
	return w.turns[id]
}

// queueUp puts a pending task in line for its turn.
func (w *work) queueUp(id store.ID, of turn, priority int16) error {
	row, err := w.turnsOf(of)
	if err != nil {
		return err
	}
	w.wrote = true
	r, err := w.one("line.add", row, priority, id)
	if err != nil {
		return err
	}
	if g := w.turn(row); g.first == 0 {
		g.first = r.int(0)
	}
	return nil
}

// leave takes a task out of the line that it stands in and returns its turn; 0
// when it stands in none.
func (w *work) leave(id store.ID) (int64, error) {
	r, err := w.one("line.drop", id)
	if err != nil || r == nil {
		return 0, err
	}
	w.wrote = true
	w.turn(r.int(0)).left = true
	return r.int(0), nil
}

// yield gives a task's turn back, if it has one.
func (w *work) yield(t *stored) error {
	if !t.holds {
		return nil
	}
	t.holds = false
	n, err := w.run("turn.yield", t.ID)
	if n > 0 {
		w.giveBack(&t.Task)
	}
	return err
}

func (w *work) giveBack(t *store.Task) {
	if w.yields == nil {
		w.yields = map[turn]int64{}
	}
	w.yields[turn{t.Queue, t.Tenant, t.Partition}]++
}

// flushTurns writes what this call has changed about turns. Who has waited longest
// is looked up only when somebody has left the line.
func (w *work) flushTurns() (err error) {
	for id, g := range w.turns {
		switch {
		case err != nil:
			return err
		case g.left:
			_, err = w.run("turn.left", g.held, id)
		case g.first != 0:
			_, err = w.run("turn.came", g.first, id)
		}
	}
	for of, n := range w.yields {
		if err == nil {
			_, err = w.run("turn.yielded", n, of.queue, of.tenant, of.partition)
		}
	}
	return err
}

// Turns implements store.Keeper. It reads no more rows than it returns.
func (s *Store) Turns(ctx context.Context, term int64, groups, heads int) (all []store.Turns, err error) {
	err = s.read(ctx, func(ctx context.Context, c session) error {
		if err := leads(ctx, c, term, s.clock.now()); term != 0 && err != nil {
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
	waiting := len(all)
	err := c.each(ctx, "turn.holders", add)
	slices.SortFunc(all[waiting:], func(a, b store.Turns) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Partition, b.Partition))
	})
	return all, err
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
	r, err := w.one("line.drop", id)
	if err != nil || r == nil {
		return false, err
	}
	queue, err := w.queueOf(r.int(0))
	if err != nil {
		return false, err
	}
	l, err := w.lane(queue, int16(r.int(1)))
	if err != nil {
		return false, err
	}
	g := w.turn(r.int(0))
	g.left = true
	g.held++
	w.wrote = true
	if r, err = w.one("grant.place", l.id, l.next(), w.now, id); err != nil {
		return false, err
	}
	w.wake(queue)
	w.waits(queue, store.Pending, -1)
	w.regroup(r.int(0), store.Pending, -1)
	return true, nil
}

// queueOf returns the queue of a turn.
func (w *work) queueOf(id int64) (string, error) {
	g := w.turn(id)
	if g.queue == "" {
		r, err := w.one("turn.queue", id)
		if err != nil {
			return "", err
		}
		g.queue = r.text(0)
	}
	return g.queue, nil
}
