package sqlite

import (
	"fmt"

	"github.com/tuskqueue/tusk/internal/bell"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// apply writes what the rules have decided. It changes counters of lanes and queues, leases and statistics in memory;
// flush writes them.
func (w *work) apply(b *rules.Batch) error {
	for _, e := range b.Ends {
		if err := w.ended(e); err != nil {
			return err
		}
	}
	changes := b.Changes()
	if err := w.applyTasks(changes); err != nil {
		return err
	}
	if err := w.applyNeeds(b); err != nil {
		return err
	}
	keys, _ := b.Keys()
	for _, k := range keys {
		if err := w.writeKey(&k); err != nil {
			return err
		}
	}
	for _, id := range b.Doubts {
		if _, err := w.run("doubt.add", id); err != nil {
			return err
		}
	}
	return nil
}

func (w *work) applyTasks(changes []rules.Change) error {
	for _, c := range changes {
		var err error
		switch {
		case c.Before == nil && c.After.Restored:
			err = w.restore(c.After)
		case c.Before == nil:
			err = w.insert(c.After)
		case c.After == nil:
			err = w.forget(w.rows[c.Before.ID])
		default:
			err = w.change(w.rows[c.Before.ID], c.After)
		}
		if err == nil && c.After != nil && c.After.Changed != nil {
			_, err = w.run("note.changed", c.After.Changed.At, string(c.After.Changed.How), c.After.ID)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// insert stores a new task. It leaves a task that was stored before unchanged.
func (w *work) insert(r *rules.Row) error {
	at, err := w.find(r, 0, 0)
	if err != nil {
		return err
	}
	added, err := w.add(r, at)
	if err != nil || !added {
		return err
	}
	w.put(r, at)
	return nil
}

// change writes what has changed in a task, and moves the task to its new spot.
func (w *work) change(t *stored, to *rules.Row) error {
	if to.Stopping && (!t.Stopping || t.StopReason != to.StopReason) {
		if err := w.stop(t, to.StopReason); err != nil {
			return err
		}
	}
	if to.Values {
		if err := w.become(t, to); err != nil {
			return err
		}
	} else if to.Queue != t.Queue || to.Priority != t.Priority {
		kind, err := w.kind(to.Queue, to.Kind)
		if err != nil {
			return err
		}
		if _, err := w.run("task.relocate", kind, to.Priority, t.num); err != nil {
			return err
		}
	}
	if to.Place == 0 {
		if to.Open == t.Open && to.Needs == t.Needs && to.Needed == t.Needed {
			return nil
		}
		_, err := w.run("task.mark", openOf(to), nullBool(to.Needed), t.num)
		return err
	}
	return w.move(t, to)
}

// move moves a task from its spot to a new one.
func (w *work) move(t *stored, to *rules.Row) error {
	if !t.last.IsZero() { // it starts over: its last attempt goes into the history
		if err := w.addAttempt(t.num, &store.Attempt{Number: t.Attempt, Worker: t.last,
			StartedAt: t.ClaimedAt, EndedAt: t.FinishedAt, Outcome: t.State}); err != nil {
			return err
		}
	}
	if err := w.lift(t); err != nil {
		return err
	}
	at, err := w.find(to, t.group, t.turn)
	if err != nil {
		return err
	}
	w.put(to, at)
	// A task that ends keeps its position, which no claim reads again.
	if t.State == store.Running && at.state.Finished() {
		_, err = w.run("task.end", at.state, to.Attempt, to.Crashes, nullText(to.Reason), nullCount(t.group), to.ClaimedAt,
			to.FinishedAt, nullID(t.runner), nullBool(to.Needed), t.num)
		return err
	}
	_, err = w.run("task.put", at.state, nullCount(at.lane), nullCount(at.pos), to.Attempt, to.Crashes,
		nullText(to.Reason), nullCount(t.group), to.RunAt, to.ClaimedAt, to.FinishedAt, nullID(t.runner), openOf(to),
		nullBool(to.Needed),
		nullCount(at.turn), nullCount(at.place), t.num)
	return err
}

// spot is where a task is: in a lane, waiting for a turn, or neither.
type spot struct {
	state                  store.State
	lane, pos, turn, place int64
	failure                int64
	of                     *lane
}

// find chooses the spot for a task that goes to the end of the lane or line for its state. turnID is the row of the
// turn that it has, or 0 if none.
func (w *work) find(r *rules.Row, failure, turnID int64) (at spot, err error) {
	at = spot{state: r.State, failure: failure}
	switch {
	case r.State == store.Available:
		if at.of, err = w.lane(r.Queue, r.Priority); err != nil {
			return at, err
		}
		at.lane, at.pos = at.of.id, at.of.tail+1
	case r.InLine():
		if at.turn, err = w.turnsOf(turn{r.Queue, r.Tenant, r.Partition}); err != nil {
			return at, err
		}
		at.place = w.nextPlace()
	}
	if r.HasTurn {
		at.turn = turnID
	}
	return at, nil
}

// put adds a task to the counters of its spot.
func (w *work) put(r *rules.Row, at spot) {
	w.regroup(at.failure, at.state, 1)
	if name := bell.For(r, w.time()); name != "" {
		w.wake(name)
	}
	switch at.state {
	case store.Available:
		at.of.next()
	case store.Scheduled, store.Retryable, store.Pending:
		w.waits(r.Queue, at.state, 1)
		if at.place != 0 {
			w.came(turn{r.Queue, r.Tenant, r.Partition}, at.turn, at.place)
		}
	}
}

// lift removes a task from the counters of its spot. A running task was already removed when its attempt ended.
func (w *work) lift(t *stored) error {
	w.regroup(t.failure, t.State, -1)
	switch t.State {
	case store.Available:
		l, err := w.lane(t.Queue, t.Priority)
		if err != nil {
			return err
		}
		l.available--
		l.changed = true
	case store.Scheduled, store.Retryable, store.Pending:
		w.waits(t.Queue, t.State, -1)
	}
	return nil
}

// become writes the values that an enqueue can replace.
func (w *work) become(t *stored, to *rules.Row) error {
	kind, err := w.kind(to.Queue, to.Kind)
	if err != nil {
		return err
	}
	tags, err := encodeTags(to.Tags)
	if err != nil {
		return err
	}
	if err := w.dropTags(t); err != nil {
		return err
	}
	if _, err := w.run("task.become", kind, to.Priority, nullBytes(to.Args), tags, nullBytes(to.Settings), to.RunAt,
		to.ExpiresAt, t.num); err != nil {
		return err
	}
	return w.addTags(to.ID, to.Tags)
}

// stop records that the worker of a running task is told to stop at its next beat.
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

// forget deletes a task. A trigger deletes its history and its needs.
func (w *work) forget(t *stored) error {
	if err := w.lift(t); err != nil {
		return err
	}
	if err := w.dropTags(t); err != nil {
		return err
	}
	_, err := w.run("forget.task", t.num)
	return err
}

// openOf returns the number of open needs, or null if the task never had needs.
func openOf(r *rules.Row) any {
	if !r.Needs {
		return nil
	}
	return r.Open
}

// applyNeeds writes new needs of tasks, and which needs are met.
func (w *work) applyNeeds(b *rules.Batch) error {
	for _, n := range b.Needs {
		if t := w.rows[n.Child]; t != nil && t.Needs {
			if _, err := w.run("need.drop", n.Child); err != nil {
				return err
			}
		}
		for i, need := range n.Needs {
			if _, err := w.run("need.add", n.Child, i, need.Task, int(need.OnFailure), nullBool(need.Open)); err != nil {
				return err
			}
		}
	}
	for _, m := range b.Met {
		if _, err := w.run("need.meet", m.Parent, m.Child); err != nil {
			return err
		}
	}
	return nil
}

func (w *work) writeKey(k *rules.Key) error {
	if k.Tasks == 0 {
		_, err := w.run("key.drop", k.Queue, k.Tenant, k.Key)
		return err
	}
	_, err := w.run("key.write", k.Queue, k.Tenant, k.Key, nullID(k.Holder), nullID(k.Awaiting), nullID(k.Ended),
		source(k.Source), k.Tasks)
	return err
}
