package sqlite

import (
	"context"
	"fmt"

	"github.com/tuskqueue/tusk/store"
)

// Edit implements store.Editor.
func (s *Store) Edit(ctx context.Context, e store.Edit) (edited []store.Edited, err error) {
	if len(e.IDs) == 0 {
		return nil, nil
	}
	err = s.write(ctx, true, func(w *work) error {
		edited = make([]store.Edited, len(e.IDs))
		for i, id := range e.IDs {
			if edited[i], err = w.edit(id, &e.Change); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("edit: %w", err)
	}
	return edited, nil
}

func (w *work) edit(id store.ID, c *store.Change) (store.Edited, error) {
	t, err := w.find(id)
	if err != nil || t == nil {
		return store.Edited{ID: id, Result: store.Missing}, err
	}
	before := t.State
	result, err := w.apply(t, c)
	done := store.Edited{ID: id, Result: result, State: t.State}
	switch {
	case result == store.Changed && c.Op == store.Delete:
		done.State = 0
	case result == store.Changed && c.Op == store.Cancel && before == store.Pending:
		done.State = store.Cancelled
	}
	return done, err
}

// apply makes a change if the task's state allows it.
func (w *work) apply(t *stored, c *store.Change) (store.EditResult, error) {
	switch {
	case t.State == store.Pending:
		return w.applyPending(t, c)
	case t.State == store.Running:
		if c.Op != store.Cancel {
			return store.Refused, nil
		}
		return store.Requested, w.stop(t, c.Reason)
	case t.State.Finished() && c.Op != store.Retry && c.Op != store.Delete:
		return store.Refused, nil
	}
	switch c.Op {
	case store.Cancel:
		return store.Changed, w.cancel(t, c.Reason)
	case store.Retry:
		return w.retry(t, c)
	case store.Delete:
		return store.Changed, w.forget(t)
	case store.Reprioritize:
		return store.Changed, w.relocate(t, t.Queue, c.Priority)
	case store.Move:
		return w.move(t, c.Queue)
	case store.Reschedule:
		return store.Changed, w.reschedule(t, c)
	}
	return store.Refused, nil
}

// applyPending makes a change to a task that waits for others, for its turn, or
// only for the end of a running one of its key.
func (w *work) applyPending(t *stored, c *store.Change) (store.EditResult, error) {
	awaits, err := w.awaits(t)
	switch {
	case err != nil:
		return 0, err
	case c.Op == store.Delete, c.Op == store.Cancel && awaits:
		return store.Changed, w.forget(t)
	case c.Op == store.Cancel:
		return store.Changed, w.cancel(t, c.Reason)
	case c.Op != store.Reprioritize || !t.Turn:
		return store.Refused, nil
	}
	if t.place == 0 {
		return store.Refused, nil // its turn is not what it waits for
	}
	kind, err := w.kind(t.Queue, t.Kind)
	if err != nil {
		return 0, err
	}
	if _, err := w.run("edit.relocate", kind, c.Priority, t.num); err != nil {
		return 0, err
	}
	w.left(t.turn)
	_, err = w.run("line.join", t.runAt, t.turn, w.nextPlace(), t.num)
	return store.Changed, err
}

// stop has the worker of a running task told at its next beat.
func (w *work) stop(t *stored, reason string) error {
	if w.claims == nil {
		var err error
		if w.claims, err = allLeases(w.ctx, w.session); err != nil {
			return err
		}
	}
	l := covering(w.claims, t.lane, t.pos)
	if l == nil {
		return fmt.Errorf("task %s is running without a lease", t.ID)
	}
	_, err := w.run("stop.add", t.ID, l.token, l.worker, nullText(reason))
	return err
}

func (w *work) cancel(t *stored, reason string) error {
	if err := w.take(t); err != nil {
		return err
	}
	t.State = store.Cancelled
	if _, err := w.run("edit.cancel", nullText(reason), w.now, t.num); err != nil {
		return err
	}
	if t.needs > 0 {
		if _, err := w.run("need.close", t.ID); err != nil {
			return err
		}
	}
	if t.needed {
		if err := w.tell(t.ID, store.Cancelled); err != nil {
			return err
		}
	}
	if t.Key == "" {
		return nil
	}
	return w.free(nameOf(&t.Task), t.ID)
}

func (w *work) retry(t *stored, c *store.Change) (store.EditResult, error) {
	if t.State == store.Available {
		return store.Refused, nil
	}
	if t.State.Finished() && t.Key != "" {
		k, err := w.key(nameOf(&t.Task))
		if err != nil {
			return 0, err
		}
		if !k.task.IsZero() {
			return store.KeyTaken, nil
		}
		k.task = t.ID
		if err := w.writeKey(k); err != nil {
			return 0, err
		}
	}
	return store.Changed, w.reschedule(t, c)
}

// reschedule gives a task a new run time; a finished one begins again.
func (w *work) reschedule(t *stored, c *store.Change) error {
	if err := w.take(t); err != nil {
		return err
	}
	if t.State == store.Available {
		if err := w.yield(t); err != nil {
			return err
		}
	}
	wait := store.Scheduled
	if t.State == store.Retryable {
		wait = store.Retryable
	}
	if t.State.Finished() {
		if err := w.revive(t); err != nil {
			return err
		}
	}
	due := runAt(&store.NewTask{RunAt: c.RunAt, Delay: c.Delay}, w.now)
	return w.putDue(t, t.Queue, t.Priority, due, wait)
}

// revive clears what a finished task counted, once its last attempt is in the
// history, and has it wait again for what it needs.
func (w *work) revive(t *stored) error {
	if !t.last.IsZero() {
		if _, err := w.run("attempt.trim", t.num); err != nil {
			return err
		}
		if _, err := w.run("attempt.add", t.num, t.Attempt, t.last, t.ClaimedAt, t.FinishedAt, t.State, nil, nil, nil); err != nil {
			return err
		}
	}
	if _, err := w.run("edit.revive", t.num); err != nil {
		return err
	}
	t.turn = 0
	return w.review(t)
}

func (w *work) move(t *stored, queue string) (store.EditResult, error) {
	if t.Queue == queue {
		return store.Changed, nil
	}
	if t.Key != "" {
		free, err := w.moveKey(t, queue)
		if err != nil || !free {
			return store.KeyTaken, err
		}
	}
	if err := w.yield(t); err != nil {
		return 0, err
	}
	return store.Changed, w.relocate(t, queue, t.Priority)
}

// moveKey takes a task's key along, unless it is held in the other queue.
func (w *work) moveKey(t *stored, queue string) (bool, error) {
	from, err := w.key(nameOf(&t.Task))
	if err != nil {
		return false, err
	}
	to, err := w.key(keyName{queue, t.Tenant, t.Key})
	if err != nil || !to.task.IsZero() {
		return false, err
	}
	to.task, to.tasks, to.source = t.ID, to.tasks+1, max(from.source, to.source)
	from.task, from.tasks = store.ID{}, from.tasks-1
	if err := w.writeKey(from); err != nil {
		return false, err
	}
	return true, w.writeKey(to)
}

// relocate puts a task that is not running at the end of another lane.
func (w *work) relocate(t *stored, queue string, priority int16) error {
	if t.Queue == queue && t.Priority == priority {
		return nil
	}
	kind, err := w.kind(queue, t.Kind)
	if err != nil {
		return err
	}
	if err := w.take(t); err != nil {
		return err
	}
	if _, err := w.run("edit.relocate", kind, priority, t.num); err != nil {
		return err
	}
	switch {
	case t.State == store.Available && t.Turn && !t.holds():
		return w.putInLine(t, queue, t.runAt)
	case t.State == store.Available:
		return w.putAvailable(t, queue, priority, t.runAt)
	}
	w.waits(queue, t.State, 1)
	w.regroup(t.failure, t.State, 1)
	return nil
}
