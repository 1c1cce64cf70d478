package rules

import (
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Edit applies one change to each task whose state allows it, and returns the result for each, in the same order.
// See store.Change for the states that allow each change.
func (b *Batch) Edit(ids []store.ID, c *store.Change) ([]store.Edited, error) {
	if err := b.reach(Want{}, ids, c.Op == store.Retry); err != nil {
		return nil, err
	}
	if c.Op == store.Move {
		if err := b.readTargets(ids, c.Queue); err != nil {
			return nil, err
		}
	}
	edited := make([]store.Edited, len(ids))
	for i, id := range ids {
		var err error
		if edited[i], err = b.edit(id, c); err != nil {
			return nil, err
		}
	}
	return edited, nil
}

// readTargets reads the keys that the tasks would have in another queue.
func (b *Batch) readTargets(ids []store.ID, queue string) error {
	var w Want
	for _, id := range ids {
		if r := b.tasks[id].After; r != nil {
			w.Keys = append(w.Keys, KeyName{queue, r.Tenant, r.Key})
		}
	}
	return b.read(w)
}

func (b *Batch) edit(id store.ID, c *store.Change) (store.Edited, error) {
	r, err := b.task(id)
	if err != nil || r == nil {
		return store.Edited{ID: id, Result: store.Missing}, err
	}
	was := *r
	result, err := b.change(r, c)
	if how := howOf[c.Op]; how != "" && result == store.Changed && !waitsAs(r, &was) {
		b.changed(r, how)
	}
	edited := store.Edited{ID: id, Result: result, State: r.State}
	switch {
	case result != store.Changed:
	case c.Op == store.Delete:
		edited.State = 0
	case c.Op == store.Cancel:
		edited.State = store.Cancelled
	}
	return edited, err
}

// howOf returns how an op changes a task that still waits afterwards.
var howOf = map[store.Op]store.How{
	store.Reprioritize: store.WasReprioritized, store.Move: store.WasMoved, store.Reschedule: store.WasRescheduled,
	store.Retry: store.WasRetried,
}

// waitsAs reports whether a task waits for the same time in the same place as before. It compares times to the
// microsecond, because not every engine stores them more precisely.
func waitsAs(r, was *Row) bool {
	return r.State == was.State && r.Queue == was.Queue && r.Priority == was.Priority &&
		r.RunAt.Truncate(time.Microsecond).Equal(was.RunAt.Truncate(time.Microsecond))
}

func (b *Batch) change(r *Row, c *store.Change) (store.EditResult, error) {
	switch {
	case r.Awaits:
		return b.changeAwaiting(r, c)
	case r.State == store.Running && c.Op == store.Cancel:
		r.Stopping, r.StopReason = true, c.Reason
		return store.Requested, nil
	case !Allows(r.State, c.Op), r.State == store.Pending && c.Op == store.Reprioritize && !r.InLine():
		return store.Refused, nil
	}
	switch c.Op {
	case store.Cancel:
		r.HasTurn, r.Reason = false, c.Reason
		return store.Changed, b.end(r, store.Cancelled, b.Now)
	case store.Retry:
		return b.retry(r, c)
	case store.Delete:
		return store.Changed, b.delete(r)
	case store.Reprioritize:
		b.relocate(r, r.Queue, c.Priority)
	case store.Move:
		return b.move(r, c.Queue)
	case store.Reschedule:
		return store.Changed, b.reschedule(r, c)
	}
	return store.Changed, nil
}

// Allows reports whether op may change a task in a state. Cancelling a running task only requests it to stop. Of the
// pending tasks, only those that wait for their turn can be reprioritized; those that wait for the running task with
// their key can only be cancelled or deleted.
func Allows(state store.State, op store.Op) bool {
	switch op {
	case store.Cancel:
		return !state.Finished()
	case store.Delete:
		return state != store.Running
	case store.Retry:
		return state == store.Scheduled || state == store.Retryable || state.Finished()
	case store.Reprioritize:
		return state != store.Running && !state.Finished()
	case store.Move, store.Reschedule:
		return state == store.Scheduled || state == store.Retryable || state == store.Available
	default:
		return false
	}
}

// changeAwaiting changes a task that waits for the end of the running task with its key. It can only be cancelled or
// deleted.
func (b *Batch) changeAwaiting(r *Row, c *store.Change) (store.EditResult, error) {
	if c.Op != store.Cancel && c.Op != store.Delete {
		return store.Refused, nil
	}
	k, err := b.key(r.key())
	if err != nil {
		return store.Refused, err
	}
	k.Awaiting = store.ID{}
	return store.Changed, b.remove(r)
}

// retry makes a task run now, or at the change's time. A finished task starts over, if its key is free.
func (b *Batch) retry(r *Row, c *store.Change) (store.EditResult, error) {
	if r.State.Finished() {
		k, err := b.key(r.key())
		if err != nil {
			return store.Refused, err
		}
		if k != nil {
			if !k.Holder.IsZero() {
				return store.KeyTaken, nil
			}
			k.Holder = r.ID
		}
	}
	return store.Changed, b.reschedule(r, c)
}

// reschedule gives a task a new run time.
func (b *Batch) reschedule(r *Row, c *store.Change) error {
	wait := store.Scheduled
	switch {
	case r.State == store.Available:
		r.HasTurn = false
	case r.State == store.Retryable:
		wait = store.Retryable
	case r.State.Finished():
		r.Attempt, r.Crashes, r.Reason, r.FinishedAt = 0, 0, "", time.Time{}
		if err := b.needAgain(r); err != nil {
			return err
		}
	}
	r.RunAt = b.runAt(c.RunAt, c.Delay)
	b.putDue(r, wait)
	return nil
}

// move puts a task, with its key, into another queue. A task that runs in turns waits for a turn there.
func (b *Batch) move(r *Row, queue string) (store.EditResult, error) {
	if r.Queue == queue {
		return store.Changed, nil
	}
	from, err := b.key(r.key())
	if err != nil {
		return store.Refused, err
	}
	if from != nil {
		to, err := b.key(KeyName{queue, r.Tenant, r.Key})
		if err != nil {
			return store.Refused, err
		}
		if !to.Holder.IsZero() {
			return store.KeyTaken, nil
		}
		to.Holder, from.Holder = r.ID, store.ID{}
		to.Tasks++
		from.Tasks--
		if from.Source.After(to.Source) {
			to.Source = from.Source
		}
	}
	r.HasTurn = false
	b.relocate(r, queue, r.Priority)
	if r.Turn && r.State == store.Available {
		b.put(r, store.Pending)
	}
	return store.Changed, nil
}

// relocate puts a task at the end of another lane.
func (b *Batch) relocate(r *Row, queue string, priority int16) {
	if r.Queue == queue && r.Priority == priority {
		return
	}
	r.Queue, r.Priority = queue, priority
	b.put(r, r.State)
}

// Delete deletes finished tasks with their history, and deletes a key together with its last task.
func (b *Batch) Delete(ids []store.ID) error {
	if err := b.read(Want{Tasks: ids}); err != nil {
		return err
	}
	next := b.around(ids, false) // without the holders of the keys: a finished task holds none
	if err := b.read(next); err != nil {
		return err
	}
	if err := b.read(Want{Tasks: b.behind(&next)}); err != nil {
		return err
	}
	for _, id := range ids {
		if r := b.tasks[id].After; r != nil {
			if err := b.delete(r); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *Batch) delete(r *Row) error {
	k, err := b.key(r.key())
	if err != nil {
		return err
	}
	if k != nil {
		if k.Holder == r.ID {
			k.Holder = store.ID{}
		}
		if k.Ended == r.ID {
			k.Ended = store.ID{}
		}
		k.Tasks--
	}
	return b.remove(r)
}

// remove removes a task and everything about it except its key.
func (b *Batch) remove(r *Row) error {
	b.needNothing(r)
	b.tasks[r.ID].After = nil
	return b.tell(r, 0)
}
