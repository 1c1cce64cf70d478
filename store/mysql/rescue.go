package mysql

import (
	"bytes"
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Rescue implements store.Keeper. It also deletes leases of dead workers without open tasks.
func (s *Store) Rescue(ctx context.Context, term int64, limit int) (tasks []store.Task, err error) {
	gone := s.attendant.gone(ctx)
	defer func() {
		if err != nil {
			s.attendant.looked(looks{})
		}
	}()
	if due, err := s.rescueDue(ctx, term); err != nil || !due && len(gone) == 0 {
		return nil, wrap("rescue", err)
	}
	err = s.write(ctx, func(w *work) error {
		tasks = nil
		if err := w.leads(term); err != nil {
			return err
		}
		leases, err := w.ofTheDead(gone)
		if err != nil {
			return err
		}
		if tasks, err = w.openOf(leases, limit); err != nil || len(tasks) >= limit {
			return err
		}
		if s.lookedForStrays(w.now) {
			return nil
		}
		if leases, err = w.strays(); err != nil {
			return err
		}
		if len(leases) == 0 {
			s.strays.Store(w.now + straysEvery.Microseconds())
		}
		strays, err := w.openOf(leases, limit-len(tasks))
		for i := range strays {
			strays[i].Stray = true
		}
		tasks = append(tasks, strays...)
		return err
	})
	if err != nil {
		return nil, wrap("rescue", err)
	}
	return tasks[:min(len(tasks), limit)], nil
}

// lookedForStrays reports whether leases were compared recently.
func (s *Store) lookedForStrays(now int64) bool {
	left := s.strays.Load() - now
	return left > 0 && left <= straysEvery.Microseconds()
}

// straysEvery is how often leases are compared with what their workers say they hold.
const straysEvery = 5 * time.Second

// strays returns the leases that live workers do not know about.
func (w *work) strays() ([]*lease, error) {
	leases, err := w.readLeases(q("rescue.strays"), w.now)
	known := map[store.ID]map[store.Token]bool{}
	strays := leases[:0]
	for _, l := range leases {
		if known[l.worker] == nil && err == nil {
			err = w.ask(func(rows *sql.Rows) error {
				var all []byte
				err := rows.Scan(&all)
				known[l.worker] = tokensOf(all)
				return err
			}, q("rescue.holds"), l.worker[:])
		}
		if held, asked := known[l.worker]; asked && !held[l.token] {
			strays = append(strays, l)
		}
	}
	return strays, err
}

// openOf returns the open tasks of leases, about as many as the limit, and deletes leases without open tasks.
func (w *work) openOf(leases []*lease, limit int) (tasks []store.Task, err error) {
	over, err := w.idle(leases)
	if err != nil {
		return nil, err
	}
	w.deleteLeases(over)
	for _, l := range leases {
		if len(tasks) >= limit {
			break
		}
		if slices.Contains(over, l.key()) {
			continue
		}
		open, _, err := w.open(l)
		if err != nil {
			return nil, err
		}
		tasks = append(tasks, open...)
	}
	return tasks, nil
}

// ofTheDead declares workers dead whose beat is overdue or whose death the witness has detected, and returns the
// leases of all dead workers. It first finds the workers and then locks each by its id, as the worker's own beat does,
// in the order of the ids, as Disown does. Locks taken along another index could deadlock with them.
func (w *work) ofTheDead(gone []departed) (leases []*lease, err error) {
	type write struct {
		id []byte
		stmt
	}
	var writes []write
	add := func(id []byte, name string, args ...any) {
		writes = append(writes, write{id, stmt{text: q(name), args: args}})
	}
	w.gather("rescue.overdue", w.now, func(id []byte) { add(id, "rescue.declare", id, w.now) })
	w.gather("rescue.ahead", w.now+clockSlack, func(id []byte) { // the clock was set back, so their TTL starts again now
		add(id, "rescue.rewind", w.now, w.now, w.now, id, w.now+clockSlack)
	})
	for _, g := range gone {
		add(g.worker[:], "witness.declare", g.worker[:], g.beatAt)
	}
	leases, err = w.readLeases(q("rescue.leases"))
	if err != nil || len(writes) == 0 {
		return leases, err
	}
	slices.SortStableFunc(writes, func(a, b write) int { return bytes.Compare(a.id, b.id) })
	for _, one := range writes {
		w.buf = append(w.buf, one.stmt)
	}
	return w.readLeases(q("rescue.leases"))
}

// gather calls each with the ids that a query finds, once the next answer is read.
func (w *work) gather(name string, argument int64, each func(id []byte)) {
	w.buf = append(w.buf, stmt{q(name), []any{argument}, func(rows *sql.Rows) error {
		var id []byte
		err := rows.Scan(&id)
		each(slices.Clone(id))
		return err
	}})
}

// stages reads how far the tasks of leases have got, by where they are.
func (w *work) stages(leases []*lease) (map[ref]stage, error) {
	var spans []span
	for _, l := range leases {
		spans = append(spans, l.spans...)
	}
	at := map[ref]stage{}
	return at, inParts(spans, maxSpans, func(part []span) error {
		text, args := among("lease.stages", part)
		return w.ask(func(rows *sql.Rows) error {
			var r ref
			var is stage
			err := rows.Scan(&r.place, &r.n, &is.lap, &is.state)
			at[r] = is
			return err
		}, text, args...)
	})
}

// idle returns the leases without open tasks. A task without a row may not be visible yet, so it counts as deleted only
// if its lease is old: if the lease were deleted too early, the task would run forever.
func (w *work) idle(leases []*lease) (over []leaseKey, err error) {
	if w.now == 0 {
		w.readClock()
	}
	at, err := w.stages(leases)
	for _, l := range leases {
		old := l.claimedAt <= w.now-sweepAfter.Microseconds()
		open := slices.ContainsFunc(refsOf(l.spans), func(r ref) bool {
			is, seen := at[r.anyLap()]
			return seen && !is.past(r.lap) || !seen && !old
		})
		if !l.damaged && !open {
			over = append(over, l.key())
		}
	}
	return over, err
}

const (
	maxSwept   = 200         // leases that are checked at once
	sweepAfter = time.Minute // how old a lease is before it is checked
)

// sweepLeases deletes leases without open tasks. Usually the process that finishes the last task does so. It cannot
// know that the task is the last one if another process, or a user's transaction, has finished some.
func (s *Store) sweepLeases(ctx context.Context, term int64) error {
	var leases []*lease
	var over []leaseKey
	var from store.Token
	if last := s.sweep.Load(); last != nil {
		from = *last
	}
	err := s.view(ctx, func(w *work) (err error) {
		leases, err = w.readLeases(q("sweep.leases"), from[:], sweepAfter.Microseconds(), maxSwept)
		if err != nil {
			return err
		}
		over, err = w.idle(leases)
		return err
	})
	if err != nil {
		return err
	}
	if len(leases) < maxSwept {
		s.sweep.Store(nil)
	} else {
		s.sweep.Store(&leases[len(leases)-1].token)
	}
	if len(over) == 0 {
		return nil
	}
	return s.write(ctx, func(w *work) error {
		if err := w.leads(term); err != nil {
			return err
		}
		w.deleteLeases(over)
		return nil
	})
}
