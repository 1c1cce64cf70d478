package postgres

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/tuskqueue/tusk/store"
)

// fewInLine is how many tasks may wait for their turn if a round is to read all of them. If more wait, it reads only
// the first ones of each group. heldRows is how many rows may record turns before the leader sums them up.
const (
	fewInLine = 100
	heldRows  = 64
)

// Turns implements store.Keeper. It reads in one trip whether the term is valid, and which tasks wait and have a turn.
func (s *Store) Turns(ctx context.Context, term int64, groups, heads int) ([]store.Turns, error) {
	h := &s.holders
	h.mu.Lock()
	defer h.mu.Unlock()
	l := &line{many: h.many}
	err := s.lookAtLine(ctx, l, term, groups, heads)
	if err == nil && !l.many && l.n > fewInLine {
		l = &line{many: true}
		err = s.lookAtLine(ctx, l, term, groups, heads)
	}
	if err != nil {
		h.forget()
		return nil, fmt.Errorf("turns: %w", err)
	}
	h.many = l.many && l.n > fewInLine/2
	if term != 0 && h.rows > heldRows {
		if err := s.exec(ctx, "sum_turns"); err != nil {
			return nil, fmt.Errorf("turns: sum up: %w", err)
		}
	}
	all, counts := l.first(groups, heads), maps.Clone(h.held)
	for i, g := range all {
		of := turnGroup{g.Queue, g.Tenant, g.Partition}
		all[i].Held = counts[of]
		delete(counts, of)
	}
	for _, of := range slices.SortedFunc(maps.Keys(counts), turnGroup.compare) {
		all = append(all, store.Turns{Queue: of.queue, Tenant: of.tenant, Partition: of.partition, Held: counts[of]})
	}
	return all, nil
}

// lookAtLine reads the waiting tasks, and what has changed for the holders of turns. It fails with store.ErrNotLeader
// if the term is not valid, unless the term is 0.
func (s *Store) lookAtLine(ctx context.Context, l *line, term int64, groups, heads int) error {
	var steps []step
	leads := term == 0
	if !leads {
		steps = append(steps, s.do("leads", term).into(func([][]byte) error {
			leads = true
			return nil
		}))
	}
	if l.many {
		steps = append(steps, s.do("turns", groups, heads).into(l.takeGroup))
	} else {
		steps = append(steps, s.do("line", fewInLine+1).into(l.take))
	}
	err := s.read(ctx, s.inOrder(append(steps, s.holders.since(s))...))
	if err != nil {
		s.lines.restart() // it may have been committed
	}
	if err == nil && !leads {
		err = store.ErrNotLeader
	}
	return err
}

// line holds the groups of tasks that wait for a turn.
type line struct {
	many   bool // only the first tasks of each group are read
	n      int  // tasks that were read
	groups []lineGroup
}

// lineGroup is a group, and the position of the task that has waited longest.
type lineGroup struct {
	store.Turns
	since, no int64
}

func (l *line) takeGroup(raw [][]byte) error {
	ids := idsOf(raw[3])
	l.n += len(ids)
	l.groups = append(l.groups, lineGroup{Turns: store.Turns{
		Queue: string(raw[0]), Tenant: string(raw[1]), Partition: string(raw[2]), Waiting: ids,
	}})
	return nil
}

// take adds a task. The tasks come group by group.
func (l *line) take(raw [][]byte) error {
	of := turnGroup{string(raw[0]), string(raw[1]), string(raw[2])}
	since, no := int64Of(raw[4]), int64Of(raw[5]) // a time is read as microseconds
	last := len(l.groups) - 1
	if last < 0 || of != (turnGroup{l.groups[last].Queue, l.groups[last].Tenant, l.groups[last].Partition}) {
		last++
		l.groups = append(l.groups, lineGroup{store.Turns{Queue: of.queue, Tenant: of.tenant, Partition: of.partition},
			since, no})
	}
	g := &l.groups[last]
	g.Waiting = append(g.Waiting, idOf(raw[3]))
	if since < g.since || since == g.since && no < g.no {
		g.since, g.no = since, no
	}
	l.n++
	return nil
}

// first returns the groups that have waited longest, with the first tasks of each.
func (l *line) first(groups, heads int) []store.Turns {
	slices.SortStableFunc(l.groups, func(a, b lineGroup) int {
		return cmp.Or(cmp.Compare(a.since, b.since), cmp.Compare(a.no, b.no))
	})
	l.groups = l.groups[:min(len(l.groups), groups)]
	all := make([]store.Turns, len(l.groups))
	for i, g := range l.groups {
		g.Waiting = g.Waiting[:min(len(g.Waiting), heads)]
		all[i] = g.Turns
	}
	return all
}

// Grant implements store.Keeper.
func (s *Store) Grant(ctx context.Context, term int64, ids []store.ID) (granted int, err error) {
	var queues []string
	leads := false
	err = s.read(ctx, s.inOrder(s.do("grant", uuidsOf(ids), term).into(func(raw [][]byte) error {
		granted, queues, leads = int(int32Of(raw[0])), textsOf(raw[1]), raw[2][0] != 0
		for no := 1; no < len(lineTables); no++ {
			if raw[2+no][0] != 0 {
				s.lines.left(no)
			}
		}
		return nil
	})))
	if err == nil && !leads {
		err = store.ErrNotLeader
	}
	if err != nil {
		return 0, fmt.Errorf("grant: %w", err)
	}
	if granted != len(ids) {
		ids = nil // some were not granted
	}
	s.present(queues, ids)
	return granted, nil
}
