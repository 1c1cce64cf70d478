package sqlite

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/tuskqueue/tusk/store"
)

// Turns implements store.Keeper. It reads which tasks have a turn and, of the waiting tasks, little more than it
// returns.
func (s *Store) Turns(ctx context.Context, term int64, groups, heads int) (all []store.Turns, err error) {
	var l look
	err = s.read(ctx, func(ctx context.Context, c session) error {
		if err := leads(ctx, c, term, s.clock.now()); term != 0 && err != nil {
			return err
		}
		l = look{ctx: ctx, session: c, seen: s.seen.begin(term), most: max(groups, 0), heads: heads}
		all, err = l.turns()
		return err
	})
	if err != nil || term == 0 {
		return all, wrap("turns", err)
	}
	s.seen.learn(&l)
	if rows := l.untidy(); len(rows) > 0 {
		err = s.write(ctx, false, during(term, func(w *work) error { return w.reckon(rows) }))
	}
	return all, wrap("turns", err)
}

// look is one read of the tasks that wait for turns or have them.
type look struct {
	ctx     context.Context
	session session
	seen    memory

	most, heads int
	found       []group
	// The place of the last group to return, once there are enough of them, else 0.
	settled int64
	left    bool    // not all groups were read
	empty   []int64 // rows in which no task waits
	// Rows that say that a task has waited longer than any has.
	stale []int64
}

// group is a row of tusk_turn for which tasks wait, and the place of the first of them.
type group struct {
	row, place int64
	waiting    []store.ID
}

func (l *look) turns() ([]store.Turns, error) {
	held := map[int64]int64{}
	err := l.session.each(l.ctx, "turn.holders", func(r row) error {
		held[r.int(0)] = r.int(1)
		return nil
	})
	if err == nil && l.most > 0 {
		err = l.waiting()
	}
	if err != nil {
		return nil, err
	}
	rows := make([]int64, 0, len(l.found)+len(held))
	for _, g := range l.found {
		rows = append(rows, g.row)
	}
	for row := range held {
		rows = append(rows, row)
	}
	if err := l.name(rows); err != nil {
		return nil, err
	}
	of := func(row int64) store.Turns {
		t := l.seen.names[row]
		return store.Turns{Queue: t.queue, Tenant: t.tenant, Partition: t.partition, Held: held[row]}
	}
	all := make([]store.Turns, 0, len(rows))
	for _, g := range l.found {
		t := of(g.row)
		t.Waiting = g.waiting
		all = append(all, t)
		delete(held, g.row)
	}
	first := len(all)
	for row := range held {
		all = append(all, of(row))
	}
	slices.SortFunc(all[first:], func(a, b store.Turns) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Partition, b.Partition))
	})
	return all, nil
}

// waiting reads the waiting tasks: one by one if they are few compared with the number of groups last time, and
// otherwise by group.
func (l *look) waiting() error {
	most := 4*l.seen.groups + 200
	l.seen.lined = map[store.ID]lined{}
	err := l.session.each(l.ctx, "turn.few", func(r row) error {
		if len(l.seen.lined) == most {
			return errEnough
		}
		t := lined{turn: r.int(0), priority: r.int(1), place: r.int(2), num: r.int(4)}
		id := r.id(3)
		l.seen.lined[id] = t
		last := len(l.found) - 1
		if last < 0 || l.found[last].row != t.turn {
			l.found, last = append(l.found, group{row: t.turn, place: t.place}), last+1
		}
		g := &l.found[last]
		if g.place = min(g.place, t.place); len(g.waiting) < l.heads {
			g.waiting = append(g.waiting, id)
		}
		return nil
	}, most+1)
	if errors.Is(err, errEnough) {
		l.found, l.seen.lined = nil, nil
		err = l.session.each(l.ctx, "turn.waiting", l.add, l.heads)
	} else if err == nil && len(l.found) == 0 {
		err = l.session.each(l.ctx, "turn.empties", func(r row) error {
			l.empty = append(l.empty, r.int(0))
			return nil
		})
	}
	if err != nil && !errors.Is(err, errEnough) {
		return err
	}
	l.seen.groups = len(l.found)
	l.cut()
	return nil
}

// add adds a row of tusk_turn. The rows are in the order in which their tasks wait, or have waited.
func (l *look) add(r row) (err error) {
	if l.settled > 0 && r.int(1) > l.settled {
		l.left = true
		return errEnough
	}
	g := group{row: r.int(0), place: first(r.int(2), r.int(3))}
	if g.place == 0 {
		l.empty = append(l.empty, g.row)
		return nil
	}
	if g.place != r.int(1) {
		l.stale = append(l.stale, g.row)
	}
	g.waiting, err = idsOf(r.text(4))
	if l.found = append(l.found, g); len(l.found) > 2*l.most {
		l.cut()
	}
	return err
}

// errEnough ends a read, because the remaining rows are not needed.
var errEnough = errors.New("enough")

// first returns the smaller of two places, where 0 means none.
func first(a, b int64) int64 {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// cut keeps the groups that have waited longest, as many as are returned.
func (l *look) cut() {
	slices.SortFunc(l.found, func(a, b group) int { return cmp.Compare(a.place, b.place) })
	if len(l.found) > l.most {
		l.found, l.left = l.found[:l.most], true
	}
	if l.settled = 0; len(l.found) == l.most && l.most > 0 {
		l.settled = l.found[l.most-1].place
	}
}

// untidy returns the rows that make reads longer, if they are worth a write: not all groups were read, or no task
// waits in most of the rows that were read.
func (l *look) untidy() []int64 {
	if l.left {
		return append(l.empty, l.stale...)
	}
	if len(l.empty) > len(l.found) {
		return l.empty
	}
	return nil
}

// name reads the queue, tenant and partition of rows of tusk_turn, unless they are known.
func (l *look) name(rows []int64) error {
	var unknown []int64
	before := l.seen.names
	l.seen.names = make(map[int64]turn, len(rows))
	for _, row := range rows {
		if of, known := before[row]; known {
			l.seen.names[row] = of
		} else {
			unknown = append(unknown, row)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	return l.session.each(l.ctx, "turn.names", func(r row) error {
		l.seen.names[r.int(0)] = turn{r.text(1), r.text(2), r.text(3)}
		return nil
	}, inJSON(unknown))
}

// idsOf decodes concatenated ids.
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
