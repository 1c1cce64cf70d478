package sqlite

import (
	"context"

	"github.com/tuskqueue/tusk/store"
)

// What tusk_need.open says; null: nobody waits for it any more.
const (
	needOpen   = 1
	needFailed = 2 // it has failed, and the task is to be cancelled
)

// need has a task wait for others, in place of those that it needed before.
func (w *work) need(t *stored, needs []store.Need) error {
	if t.needs > 0 {
		if _, err := w.run("need.drop", t.ID); err != nil {
			return err
		}
	}
	if n := int64(len(needs)); n != t.needs {
		t.needs = n
		if _, err := w.run("need.count", nullCount(len(needs)), t.num); err != nil {
			return err
		}
	}
	return w.addNeeds(t.ID, needs)
}

// addNeeds writes down what a task needs and marks that as needed, unless it has
// ended as it should.
func (w *work) addNeeds(id store.ID, needs []store.Need) error {
	for _, n := range needs {
		num, state, err := w.parent(n.Task)
		if err != nil {
			return err
		}
		var is any
		switch {
		case n.Met(state):
		case n.Dooms(state):
			is = needFailed
		default:
			is = needOpen
		}
		if _, err := w.run("need.add", id, n.Task, int(n.OnFailure), is); err != nil {
			return err
		}
		if is != nil && num != 0 {
			if _, err := w.run("need.mark", num); err != nil {
				return err
			}
		}
	}
	return nil
}

// review looks again at what has become of all that a task needs.
func (w *work) review(t *stored) error {
	if t.needs == 0 {
		return nil
	}
	var needs []store.Need
	err := w.all("need.list", func(r row) error {
		needs = append(needs, store.Need{Task: r.id(0), OnFailure: store.OnFailure(r.int(1))})
		return nil
	}, t.ID)
	if err != nil {
		return err
	}
	return w.need(t, needs)
}

// isOpen reports whether a task still waits for others.
func (w *work) isOpen(t *stored) (bool, error) {
	if t.needs == 0 {
		return false, nil
	}
	r, err := w.one("need.left", t.ID)
	return r != nil, err
}

// tell lets the tasks that need one know that it has ended; a state of 0: that it
// is gone.
func (w *work) tell(id store.ID, state store.State) error {
	var free []store.ID
	err := w.all("need.waiting", func(r row) error {
		if n := (store.Need{OnFailure: store.OnFailure(r.int(1))}); n.Met(state) {
			free = append(free, r.id(0))
		}
		return nil
	}, id)
	if err != nil {
		return err
	}
	if _, err := w.run("need.end", id, state); err != nil {
		return err
	}
	for _, child := range free {
		if err := w.release(child); err != nil {
			return err
		}
	}
	return nil
}

// release lets a pending task go if it waits for no other any more.
func (w *work) release(id store.ID) error {
	t, err := w.find(id)
	if err != nil || t == nil || t.State != store.Pending {
		return err
	}
	if is, err := w.isOpen(t); is || err != nil {
		return err
	}
	if is, err := w.awaits(t); is || err != nil {
		return err
	}
	if err := w.take(t); err != nil {
		return err
	}
	return w.putReady(t, t.Queue, t.Priority, t.runAt, store.Scheduled)
}

// awaits reports whether a pending task awaits the end of a running one of its
// key, rather than what it needs.
func (w *work) awaits(t *stored) (bool, error) {
	if t.Key == "" {
		return false, nil
	}
	k, err := w.key(nameOf(&t.Task))
	return k.awaiting == t.ID, err
}

// cancelDoomed cancels pending tasks that need what has failed, and reports how
// many, and whether there are more: those that need them are doomed in turn.
func (w *work) cancelDoomed(limit int) (cancelled int, more bool, err error) {
	var tasks []store.ID
	err = w.all("need.failed", func(r row) error {
		tasks = append(tasks, r.id(0))
		return nil
	}, limit)
	for _, id := range tasks {
		if err != nil {
			return 0, false, err
		}
		var did bool
		if did, err = w.cancelIfDoomed(id); did {
			cancelled++
		}
	}
	if err != nil {
		return 0, false, err
	}
	more, err = anyDoomed(w.ctx, w.session)
	return cancelled, more, err
}

// cancelIfDoomed cancels a pending task for the first of its needs that has failed
// and has not been retried since. One that awaits a running task of its key is
// reviewed when the key is free.
func (w *work) cancelIfDoomed(id store.ID) (bool, error) {
	t, err := w.find(id)
	if err != nil {
		return false, err
	}
	if t == nil || t.State != store.Pending { // cancelled just now, for another of its needs
		_, err = w.run("need.close", id)
		return false, err
	}
	awaits, err := w.awaits(t)
	if err != nil {
		return false, err
	}
	type edge struct {
		num int64
		store.Need
	}
	var edges []edge
	err = w.all("need.failures", func(r row) error {
		edges = append(edges, edge{r.int(0), store.Need{Task: r.id(1), OnFailure: store.CancelOnFailure}})
		return nil
	}, id)
	for _, e := range edges {
		if err != nil {
			return false, err
		}
		var state store.State
		if _, state, err = w.parent(e.Task); err != nil {
			return false, err
		}
		if !awaits && e.Dooms(state) {
			return true, w.cancel(t, e.Reason(state))
		}
		_, err = w.run("need.reopen", e.num)
	}
	return false, err
}

// parent looks up what is needed: its row's number and state, both 0 if there is
// no such task.
func (w *work) parent(id store.ID) (num int64, state store.State, err error) {
	r, err := w.one("need.parent", id)
	if err != nil || r == nil {
		return 0, 0, err
	}
	return r.int(0), store.State(r.int(1)), nil
}

// readNeeds reads what a task needs, for Detail.
func (l *list) readNeeds(t *stored) error {
	if t.needs == 0 {
		return nil
	}
	return l.each(l.ctx, "need.states", func(r row) error {
		t.Detail.Needs = append(t.Detail.Needs, store.NeedState{
			Need:  store.Need{Task: r.id(0), OnFailure: store.OnFailure(r.int(1))},
			State: store.State(r.int(2)),
		})
		return nil
	}, t.ID)
}

// anyDoomed reports whether there is a task to cancel.
func anyDoomed(ctx context.Context, c session) (bool, error) {
	r, err := one(ctx, c, "need.any")
	return r != nil, err
}

func nullCount[N int | int64](n N) any {
	if n == 0 {
		return nil
	}
	return n
}
