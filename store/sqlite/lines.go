package sqlite

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

const (
	// fewLined is the largest number of waiting tasks that the writer reads, because nobody else writes meanwhile.
	fewLined = 20_000
	// manyLined is the largest number that it remembers, at about 100 bytes each.
	manyLined = 200_000
	// relined is how often it reads them again, and regain the shortest time between two readings.
	relined = 10 * time.Second
	regain  = time.Second
)

// lines is what the writer of the leading process remembers of the tasks that wait for turns or have them, as long as
// nobody else writes to the file. Each transaction records what it does to them (step), and these steps count once they
// are committed.
type lines struct {
	read    time.Time
	rows    map[int64]*line // by the number in tusk_turn
	of      map[turn]*line
	waiting int
}

// line is a row of tusk_turn: how many tasks have a turn, and which wait, by priority.
type line struct {
	of    turn
	row   int64
	held  int64
	ranks []rank
}

// rank holds the tasks of a line with the same priority, in the order of their places.
type rank struct {
	priority int64
	tasks    []waiter
}

// waiter is a task in line.
type waiter struct {
	num, place int64
	id         store.ID
}

// step is what a transaction does to one task: the task enters or leaves the line or, without a place, gets a turn or
// gives it back. For a completed task the row of its turn is unknown, and for a granted one the turn itself may be.
type step struct {
	of   turn
	at   lined
	id   store.ID
	come bool
}

// apply applies the steps of a transaction, and reports whether they fit what is known.
func (m *lines) apply(steps []step) bool {
	for i := range steps {
		s := &steps[i]
		l := m.rows[s.at.turn]
		if s.at.turn == 0 {
			l = m.of[s.of]
		}
		if l == nil {
			if !s.come {
				return false
			}
			l = m.line(s.of, s.at.turn)
		}
		switch {
		case s.at.place != 0 && s.come:
			l.join(s.at, s.id)
			m.waiting++
		case s.at.place != 0:
			if !l.leave(s.at) {
				return false
			}
			m.waiting--
		case s.come:
			l.held++
		default:
			l.held--
		}
		if l.held < 0 {
			return false
		}
	}
	return m.waiting <= manyLined
}

// line adds a row.
func (m *lines) line(of turn, row int64) *line {
	l := &line{of: of, row: row}
	m.rows[row], m.of[of] = l, l
	return l
}

func (l *line) rank(priority int64) (int, bool) {
	return slices.BinarySearchFunc(l.ranks, priority, func(r rank, p int64) int { return cmp.Compare(r.priority, p) })
}

func (r *rank) find(place int64) (int, bool) {
	return slices.BinarySearchFunc(r.tasks, place, func(t waiter, p int64) int { return cmp.Compare(t.place, p) })
}

func (l *line) join(at lined, id store.ID) {
	i, found := l.rank(at.priority)
	if !found {
		l.ranks = slices.Insert(l.ranks, i, rank{priority: at.priority})
	}
	r := &l.ranks[i]
	n, _ := r.find(at.place)
	r.tasks = slices.Insert(r.tasks, n, waiter{at.num, at.place, id})
}

// leave removes a task. Nearly always it is the first one.
func (l *line) leave(at lined) bool {
	i, found := l.rank(at.priority)
	if !found {
		return false
	}
	r := &l.ranks[i]
	n, found := r.find(at.place)
	switch {
	case !found:
		return false
	case n == 0:
		r.tasks = r.tasks[1:]
	default:
		r.tasks = slices.Delete(r.tasks, n, n+1)
	}
	if len(r.tasks) == 0 {
		l.ranks = slices.Delete(l.ranks, i, i+1)
	}
	return true
}

// show fills in what a look would read.
func (m *lines) show(l *look) {
	l.held = make(map[int64]int64, len(m.rows))
	l.seen.names, l.seen.lined = make(map[int64]turn, len(m.rows)), map[store.ID]lined{}
	l.found = make([]group, 0, len(m.rows))
	for row, of := range m.rows {
		if of.held == 0 && len(of.ranks) == 0 {
			delete(m.rows, row)
			delete(m.of, of.of)
			continue
		}
		l.seen.names[row] = of.of
		if of.held > 0 {
			l.held[row] = of.held
		}
		if len(of.ranks) > 0 {
			l.found = append(l.found, of.group(l))
		}
	}
	l.seen.groups = len(l.found)
	l.cut()
}

// group returns the waiting tasks, as many as the look returns, and the place of the one that has waited longest.
func (l *line) group(k *look) group {
	g := group{row: l.row, place: l.ranks[0].tasks[0].place}
	for _, r := range l.ranks {
		g.place = min(g.place, r.tasks[0].place)
		for _, t := range r.tasks[:min(len(r.tasks), max(k.heads-len(g.waiting), 0))] {
			g.waiting = append(g.waiting, t.id)
			k.seen.lined[t.id] = lined{num: t.num, turn: l.row, priority: r.priority, place: t.place}
		}
	}
	return g
}

// step records what a call does to a task in line or with a turn.
func (w *work) step(s step) {
	if w.lined != nil {
		w.steps = append(w.steps, s)
	}
}

// showLines fills in a look from what the writer remembers. It first makes the writer read that, if it may. It returns
// false if the writer does not know.
func (s *Store) showLines(ctx context.Context, term int64, l *look) (known bool, err error) {
	regain := s.mayRead()
	if !regain && !s.knows.Load() {
		return false, nil
	}
	err = s.write(ctx, false, during(term, func(w *work) (err error) {
		known = false
		m := w.lined
		if regain && (m == nil || time.Since(m.read) > relined) {
			if m, err = w.readLines(); err != nil {
				return err
			}
		}
		if m == nil {
			return nil
		}
		m.show(l)
		known, w.lined = true, m
		return nil
	}))
	return known, err
}

// mayRead reports whether the writer may read the lines. It may do so only once in a while, because others may write
// all the time.
func (s *Store) mayRead() bool {
	now, last := time.Now().UnixNano(), s.regained.Load()
	return now-last >= int64(regain) && s.regained.CompareAndSwap(last, now)
}

// shown returns the result of a look at what the writer remembers.
func (s *Store) shown(l *look) []store.Turns {
	if l.found == nil {
		return nil
	}
	s.some.Store(len(l.found) > 0)
	s.seen.learn(l)
	return l.all()
}

// readLines reads which tasks wait for turns or have them. If too many wait, it returns what is known already.
func (w *work) readLines() (*lines, error) {
	r, err := w.one("turn.many")
	if err != nil || r.int(0) > fewLined {
		return w.lined, err
	}
	held, steps, rows := map[int64]int64{}, []step(nil), []int64(nil)
	err = w.all("turn.holders", func(r row) error {
		held[r.int(0)], rows = r.int(1), append(rows, r.int(0))
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = w.all("turn.few", func(r row) error {
		at := lined{turn: r.int(0), priority: r.int(1), place: r.int(2), num: r.int(4)}
		if n := len(steps); n == 0 || steps[n-1].at.turn != at.turn {
			rows = append(rows, at.turn)
		}
		steps = append(steps, step{at: at, id: r.id(3), come: true})
		return nil
	}, fewLined+1)
	if err != nil {
		return nil, err
	}
	m := &lines{read: time.Now(), rows: map[int64]*line{}, of: map[turn]*line{}}
	err = w.all("turn.names", func(r row) error {
		m.line(turn{r.text(1), r.text(2), r.text(3)}, r.int(0)).held = held[r.int(0)]
		return nil
	}, inJSON(rows))
	if err != nil || !m.apply(steps) {
		return nil, err
	}
	w.transaction.steps = nil // their effect has been read, too
	return m, nil
}
