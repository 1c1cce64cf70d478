package sqlite

import (
	"context"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// Grant implements store.Keeper. Most tasks of queues with limits pass through it, so it reads and writes only the turn
// of each task. Like a claim it is not durable by itself: if a grant is lost, the task still waits, and nobody has run
// it.
func (s *Store) Grant(ctx context.Context, term int64, ids []store.ID) (granted int, err error) {
	err = s.write(ctx, false, during(term, func(w *work) (err error) {
		granted, err = w.grantAll(ids, term)
		return err
	}))
	return answer(granted, "grant", err)
}

func (w *work) grantAll(ids []store.ID, term int64) (granted int, err error) {
	for _, id := range ids {
		given, err := w.grant(id, term)
		if err != nil {
			return granted, err
		}
		if given {
			granted++
		}
	}
	return granted, nil
}

// grant takes a task out of line and gives it its turn, if it waits for one: a task with a place in line waits for
// nothing else. grant first tries the place where the last look has seen the task.
func (w *work) grant(id store.ID, term int64) (bool, error) {
	if at, of, known := w.store.seen.find(id, term); known {
		t := &stored{num: at.num, turn: at.turn}
		t.Queue, t.Priority = of.queue, int16(at.priority)
		if given, err := w.give(t, "grant.take", at.place, at.turn, at.priority); given || err != nil {
			return given, err
		}
	}
	t, err := w.inLine(id)
	if t == nil || err != nil {
		return false, err
	}
	return w.give(t, "grant.put")
}

// inLine returns a task that waits for its turn, or nil if the task does not.
func (w *work) inLine(id store.ID) (*stored, error) {
	r, err := w.one("grant.find", id)
	if r == nil || err != nil {
		return nil, err
	}
	of, err := w.names()(r.int(1))
	t := &stored{num: r.int(0), failure: r.int(3), turn: r.int(4)}
	t.Queue, t.Priority = of.queue, int16(r.int(2))
	return t, err
}

// give moves a task from the line to its lane with a statement, which may need more arguments.
func (w *work) give(t *stored, name string, more ...any) (bool, error) {
	to := rules.Row{}
	to.Queue, to.Priority, to.State, to.HasTurn = t.Queue, t.Priority, store.Available, true
	at, err := w.find(&to, t.failure, t.turn)
	if err != nil {
		return false, err
	}
	n, err := w.run(name, append([]any{at.lane, at.pos, w.now, t.num}, more...)...)
	if n == 0 || err != nil {
		return false, err
	}
	t.State = store.Pending
	if err := w.lift(t); err != nil {
		return false, err
	}
	w.put(&to, at)
	return true, nil
}
