package sqlite

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"

	"github.com/tuskqueue/tusk/store"
)

// turn is what turns are counted by.
type turn struct{ queue, tenant, partition string }

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

// came takes note of who stands in line from now on.
func (w *work) came(row, place int64) {
	if w.lines == nil {
		w.lines = map[int64]int64{}
	}
	if _, known := w.lines[row]; !known {
		w.lines[row] = place
	}
}

// left takes note of a row that somebody waits for no longer.
func (w *work) left(row int64) {
	if w.lines == nil {
		w.lines = map[int64]int64{}
	}
	w.lines[row] = 0
}

// flushTurns writes who has waited longest for what this call has changed. That is
// looked up only when somebody has left the line.
func (w *work) flushTurns() error {
	var left []int64
	var came [][2]int64
	for row, first := range w.lines {
		if first == 0 {
			left = append(left, row)
		} else {
			came = append(came, [2]int64{row, first})
		}
	}
	if len(left) > 0 {
		slices.Sort(left)
		if _, err := w.run("turn.left", inJSON(left)); err != nil {
			return err
		}
	}
	if len(came) > 0 {
		slices.SortFunc(came, func(a, b [2]int64) int { return cmp.Compare(a[0], b[0]) })
		if _, err := w.run("turn.came", inJSON(came)); err != nil {
			return err
		}
	}
	return nil
}

// Turns implements store.Keeper. It reads no more rows than it returns, and who has
// a turn.
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
	all, holders := []store.Turns{}, map[int64]store.Turns{}
	group := func(r row) store.Turns { return store.Turns{Queue: r.text(1), Tenant: r.text(2), Partition: r.text(3)} }
	err := c.each(ctx, "turn.holders", func(r row) error {
		g := group(r)
		g.Held = r.int(4)
		holders[r.int(0)] = g
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = c.each(ctx, "turn.waiting", func(r row) (err error) {
		g := group(r)
		g.Held = holders[r.int(0)].Held
		g.Waiting, err = idsOf(r.text(4))
		delete(holders, r.int(0))
		all = append(all, g)
		return err
	}, groups, heads)
	others := slices.SortedFunc(maps.Values(holders), func(a, b store.Turns) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Partition, b.Partition))
	})
	return append(all, others...), err
}

// idsOf reads ids that are written one after another.
func idsOf(text string) ([]store.ID, error) {
	if text == "" {
		return nil, nil
	}
	all, err := hex.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("ids %q: %w", text, err)
	}
	ids := make([]store.ID, len(all)/len(store.ID{}))
	for i := range ids {
		copy(ids[i][:], all[i*len(ids[i]):])
	}
	return ids, nil
}

// Grant implements store.Keeper. Most tasks of queues with limits pass here, so it reads and writes
// no more of each than its turn. A task with a place in line waits for that alone.
func (s *Store) Grant(ctx context.Context, term int64, ids []store.ID) (granted int, err error) {
	err = s.lead(ctx, term, func(w *work) error {
		waiting, err := w.inLine(ids)
		granted = len(waiting)
		for _, t := range waiting {
			if err == nil {
				err = w.grant(t)
			}
		}
		return err
	})
	return answer(granted, "grant", err)
}

// inLine returns those of the tasks that wait for their turn, each once.
func (w *work) inLine(ids []store.ID) (waiting []*stored, err error) {
	names, seen := w.names(), map[int64]bool{}
	err = w.all("grant.find", func(r row) error {
		of, err := names(r.int(1))
		t := &stored{num: r.int(0), failure: r.int(3), turn: r.int(4), place: 1}
		t.Queue, t.Priority, t.State = of.queue, int16(r.int(2)), store.Pending
		if !seen[t.num] {
			seen[t.num] = true
			waiting = append(waiting, t)
		}
		return err
	}, inHex(ids))
	return waiting, err
}

// grant takes a task out of line and gives it its turn.
func (w *work) grant(t *stored) error {
	if err := w.lift(t); err != nil {
		return err
	}
	t.State, t.HasTurn = store.Available, true
	at, err := w.find(&t.Row, t.failure, t.turn)
	if err != nil {
		return err
	}
	w.put(&t.Row, at)
	_, err = w.run("grant.put", at.lane, at.pos, w.now, t.num)
	return err
}
