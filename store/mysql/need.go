package mysql

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"slices"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// needsOf reads the needs of tasks, those of each task in the order in which they were given.
func (w *work) needsOf(refs []ref, each func(at ref, n rules.OpenNeed)) error {
	return inParts(spansOf(refs), maxSpans, func(part []span) error {
		text, args := among("need.of", part)
		return w.ask(func(rows *sql.Rows) error {
			var at ref
			var n rules.OpenNeed
			var id []byte
			err := rows.Scan(&at.place, &at.n, &id, &n.OnFailure, &n.Open)
			copy(n.Task[:], id)
			each(at, n)
			return err
		}, text, args...)
	})
}

// writeNeeds writes new needs of tasks, which needs are met, and which tasks may be doomed.
func (w *work) writeNeeds(b *rules.Batch) {
	var anew []ref
	var rows []any
	for _, n := range b.Needs {
		at := w.placeOf(n.Child)
		if r := w.ids[n.Child]; r == nil {
			continue // it was deleted, too
		} else if !r.fresh {
			anew = append(anew, at)
		}
		for i, need := range n.Needs {
			rows = append(rows, at.place, at.n, i, need.Task[:], need.OnFailure, need.Open)
		}
	}
	w.drop("need.clear", anew)
	w.insertValues("need.insert", "(?, ?, ?, ?, ?, ?)", rows)
	met := map[store.ID][]ref{}
	var parents ordered[store.ID]
	for _, m := range b.Met {
		parents.add(m.Parent)
		met[m.Parent] = append(met[m.Parent], w.placeOf(m.Child))
	}
	for _, parent := range parents.items {
		children := met[parent]
		slices.SortFunc(children, byPlace)
		// It reads all tasks that need the parent. A child may need thousands.
		which := "need.met"
		if len(children) > maxSpans {
			// It reads all needs of the children. The other would read all for each part.
			which = "need.met of many"
		}
		for part := range slices.Chunk(apart(children), maxSpans) {
			text, args := among(which, part, parent[:])
			w.do(text, args...)
		}
	}
	var doubts []any
	for _, id := range b.Doubts {
		if at := w.placeOf(id); at != (ref{}) {
			doubts = append(doubts, at.place, at.n)
		}
	}
	w.insertValues("doomed.add", "(?, ?)", doubts)
}

// cancelDoomed cancels up to limit pending tasks that need a failed task; the tasks that need them become doomed in
// turn. It skips tasks that an open transaction holds.
func (s *Store) cancelDoomed(ctx context.Context, term int64, limit int) (cancelled int, err error) {
	first := ref{place: math.MinInt64}
	last, before := first, 0
	for cancelled < limit {
		var some []ref
		err := s.view(ctx, func(w *work) error {
			some = nil
			return w.ask(func(rows *sql.Rows) error {
				var r ref
				err := rows.Scan(&r.place, &r.n)
				some = append(some, r)
				return err
			}, q("doomed.some"), last.place, last.place, last.n, min(limit-cancelled, 100))
		})
		if err != nil || len(some) == 0 && cancelled == before {
			return cancelled, err
		}
		// Tasks that became doomed in turn may come before those that doomed them.
		if len(some) == 0 {
			last, before = first, cancelled
			continue
		}
		last = some[len(some)-1]
		_, err = apartIfHeld(some, func(part []ref) error {
			n := 0
			err := s.hurry(ctx, triesFor(part), func(w *work) error {
				if err := w.leads(term); err != nil {
					return err
				}
				n, err = w.doom(part)
				return err
			})
			if err == nil {
				cancelled += n
			}
			return err
		})
		if err != nil {
			return cancelled, err
		}
	}
	return cancelled, nil
}

// doom cancels those of the tasks that are pending and need a failed task.
func (w *work) doom(at []ref) (cancelled int, err error) {
	found, err := w.read("task.read without args", apart(at))
	if err != nil {
		return 0, err
	}
	var ids []store.ID
	var keys []rules.KeyName
	for _, at := range at {
		if r := found[at]; r != nil {
			ids = append(ids, r.ID)
			keys = append(keys, nameOf(&r.Task))
			w.isAt(r.ID, r.ref)
		}
	}
	if err := w.lockKeys(sortedKeys(keys)); err != nil {
		return 0, err
	}
	w.drop("doomed.delete", at)
	return cancelled, w.decide(func(b *rules.Batch) error {
		cancelled, err = b.Doom(ids)
		return err
	})
}

// statesOf reads the states of needed tasks.
func (w *work) statesOf(ids []store.ID) (map[store.ID]store.State, error) {
	var found []*row
	err := w.locate(idArgs(ids), func(at ref, id store.ID, state store.State, _ rules.KeyName) {
		r := &row{ref: at}
		r.ID, r.State = id, state
		found = append(found, r)
	})
	if err := errors.Join(err, w.tellRunning(found)); err != nil {
		return nil, err
	}
	states := map[store.ID]store.State{}
	for _, r := range found {
		if states[r.ID] = r.State; r.running() {
			states[r.ID] = store.Running
		}
	}
	return states, nil
}
