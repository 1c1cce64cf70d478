package sqlite

import (
	"cmp"
	"context"
	"maps"
	"slices"
)

// turn is what turns are grouped by.
type turn struct{ queue, tenant, partition string }

// stand is a row of tusk_turn, and whether the row is known to say that a task may wait.
type stand struct {
	id    int64
	waits bool
}

// stands are the rows of tusk_turn that the writer remembers as long as no other process writes to the file.
type stands struct {
	version, ledger int64
	known           map[turn]stand
}

const maxStands = 50_000

// meet forgets everything if another process has written, or the schema was dropped and created again.
func (s *stands) meet(ctx context.Context, c session, ledger int64) error {
	return c.each(ctx, "pragma data_version", func(r row) error {
		if version := r.int(0); version != s.version || ledger != s.ledger || len(s.known) > maxStands {
			s.version, s.ledger, s.known = version, ledger, map[turn]stand{}
		}
		return nil
	})
}

// stand returns what is known about a turn.
func (t *transaction) stand(of turn) (stand, bool) {
	if s, ok := t.stood[of]; ok || t.stands == nil {
		return s, ok
	}
	s, ok := t.stands.known[of]
	return s, ok
}

// remember keeps a row of tusk_turn for this transaction and, after its commit, for later ones.
func (t *transaction) remember(of turn, s stand) {
	if t.stood == nil {
		t.stood = map[turn]stand{}
	}
	t.stood[of] = s
}

// add keeps what a transaction has found out, after its commit.
func (s *stands) add(found map[turn]stand) { maps.Copy(s.known, found) }

// forgetStands must be called before rows of tusk_turn are deleted, or changed to say that no task waits.
func (t *transaction) forgetStands() {
	clear(t.stood)
	if t.stands != nil {
		clear(t.stands.known)
	}
}

// turnsOf returns the row of a turn, and adds it if it is new.
func (w *work) turnsOf(of turn) (id int64, err error) {
	if s, ok := w.stand(of); ok {
		return s.id, nil
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
	w.remember(of, stand{id: r.int(0)})
	return r.int(0), nil
}

// came records a task that waits for its turn from now on. If the row already says that a task may wait, there is
// nothing to write: tusk_turn.since may be that of a task that has left meanwhile.
func (w *work) came(of turn, row, place int64) {
	if s, ok := w.stand(of); ok && s.waits {
		return
	}
	if w.lines == nil {
		w.lines = map[turn]arrival{}
	}
	if _, known := w.lines[of]; !known {
		w.lines[of] = arrival{row, place}
	}
}

// arrival is the place of the first task that came, and the row of tusk_turn.
type arrival struct{ row, place int64 }

// flushTurns writes the arrivals in lines in which possibly no task waited.
func (w *work) flushTurns() error {
	if len(w.lines) == 0 {
		return nil
	}
	var came [][2]int64
	for of, first := range w.lines {
		came = append(came, [2]int64{first.row, first.place})
		w.remember(of, stand{first.row, true})
	}
	slices.SortFunc(came, func(a, b [2]int64) int { return cmp.Compare(a[0], b[0]) })
	_, err := w.run("turn.came", inJSON(came))
	return err
}

// reckon corrects rows of tusk_turn: each then says which task has waited longest, or that none waits.
func (w *work) reckon(rows []int64) error {
	w.forgetStands()
	slices.Sort(rows)
	_, err := w.run("turn.left", inJSON(rows))
	return err
}
