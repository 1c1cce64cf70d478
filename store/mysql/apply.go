package mysql

import (
	"slices"

	"github.com/tuskqueue/tusk/internal/bell"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// apply writes what the rules have decided. It gathers what it writes, so that the changes that many tasks share take
// one statement.
func (w *work) apply(b *rules.Batch) error {
	ends := map[store.ID]*rules.End{}
	for _, e := range b.Ends {
		ends[e.Task.ID] = e
	}
	changes := b.Changes()
	fresh := w.create(changes)
	for _, c := range changes {
		switch {
		case c.Before == nil && c.After == nil:
		case c.Before == nil:
			w.enter(w.ids[c.After.ID])
		case c.After == nil:
			if err := w.forget(w.ids[c.Before.ID], ends[c.Before.ID]); err != nil {
				return err
			}
		default:
			if err := w.change(w.ids[c.Before.ID], c.After, ends[c.Before.ID]); err != nil {
				return err
			}
		}
	}
	w.insert(slices.DeleteFunc(slices.Clone(fresh), func(r *row) bool { return r.Restored }))
	w.putBack(fresh)
	w.addLabels(fresh...)
	w.writeNeeds(b)
	keys, _ := b.Keys()
	w.writeKeys(keys)
	for _, r := range fresh {
		r.fresh = false
	}
	return nil
}

// create makes the rows of new tasks and gives them places.
func (w *work) create(changes []rules.Change) (fresh []*row) {
	for _, c := range changes {
		if c.Before == nil && c.After != nil {
			r := &row{Row: *c.After, fresh: true}
			if r.Restored {
				w.remember(r)
			}
			fresh = append(fresh, r)
		}
	}
	w.settleDown(fresh)
	for _, r := range fresh {
		r.Row.Place, r.Values = 0, false
		w.noteChange(r)
		w.know(r)
	}
	return fresh
}

// change writes what has changed in a task that was stored before.
func (w *work) change(t *row, to *rules.Row, e *rules.End) error {
	if to.Stopping && !(t.Stopping && t.StopReason == to.StopReason) {
		w.toStop = append(w.toStop, t.place, t.n, t.lap, textOrNull(to.StopReason))
	}
	if to.Needed && !t.Needed {
		w.needed.add(t.anyLap())
	}
	was, lift, stays := t.labels(), to.Place != 0, t.Open == to.Open && !to.Values
	if lift {
		if err := w.leave(t, e, to); err != nil {
			return err
		}
	}
	values := to.Values
	t.Row = *to
	t.Row.Place, t.Values = 0, false
	w.noteChange(t)
	if lift {
		w.enter(t)
	}
	if lift || !stays {
		w.saved.add(t)
	}
	if values {
		w.rewrite(t)
	} else {
		w.changeLabels(t, was)
	}
	return nil
}

// leave removes a task from its current place and, if its attempt has ended, writes the end.
func (w *work) leave(t *row, e *rules.End, to *rules.Row) error {
	if a, any := t.attempt(); any { // it starts over: its last attempt goes into the history
		w.addAttempt(t, &a)
	}
	if err := w.take(t); err != nil {
		return err
	}
	if e != nil {
		w.ended(t, e)
	}
	over := to.State.Finished()
	if t.State != store.Running || !over {
		t.lap++
	}
	if over {
		w.sums.finish(to.Queue, to.State, t.ref)
	}
	if t.HasTurn && !to.HasTurn {
		w.back = append(w.back, t.ref)
	} else if !t.HasTurn && to.HasTurn {
		w.given = append(w.given, t)
	}
	return nil
}

// ended writes the end of an attempt, except for the next state of the task.
func (w *work) ended(t *row, e *rules.End) {
	o, a := e.Outcome, &e.Attempt
	at := a.EndedAt.UnixMicro()
	rules.Count(w.sums.stat(o.Task.Queue, o.Task.Kind, at), o, a.Outcome, e.Waited)
	w.addAttempt(t, a)
	if o.Note != nil {
		w.do(q("note.insert"), t.place, t.n, w.next(), encodeNote(noteOf(o.Note)))
	}
	w.unstop.add(t.anyLap())
	if o.Error != "" {
		t.failure, t.fingerprint = w.sums.blame(o, at), o.Fingerprint
		if rules.Died(o) {
			w.sums.rescue(t.Queue, a.Outcome, t.ref)
		}
	}
}

// noteChange records that a waiting task was changed.
func (w *work) noteChange(r *row) {
	if r.Changed != nil {
		w.changed = append(w.changed, r.place, r.n, encodeNote(noteJSON{Changed: r.Changed}))
		r.Changed = nil
	}
}

func (w *work) addAttempt(t *row, a *store.Attempt) {
	w.attempts = append(w.attempts, t.place, t.n, t.lap, a.Number, a.Worker[:], a.StartedAt.UnixMicro(),
		a.EndedAt.UnixMicro(), a.Outcome, textOrNull(a.Error), textOrNull(a.Trace), textOrNull(a.Fingerprint))
}

// forget deletes a task with all its rows in other tables.
func (w *work) forget(t *row, e *rules.End) error {
	if err := w.take(t); err != nil {
		return err
	}
	if e != nil {
		w.ended(t, e)
	}
	if t.HasTurn {
		w.back = append(w.back, t.ref)
	}
	at := t.anyLap()
	w.erased.add(at)
	delete(w.rows, at)
	delete(w.ids, t.ID)
	return nil
}

// take removes a locked task from the table for its state.
func (w *work) take(r *row) error {
	w.tally(r, -1)
	switch r.State {
	case store.Available:
		if r.ready == nil { // it was read as a task for which this does not matter
			return errAgain
		}
		w.uncover(r)
	case store.Scheduled, store.Retryable:
		w.waits.remove(waitingAt{r.RunAt.UnixMicro(), r.place, r.n})
	case store.Pending:
		if r.InLine() {
			w.lines.remove(r)
		}
	}
	return nil
}

// enter adds a task to the table for its state.
func (w *work) enter(r *row) {
	w.tally(r, +1)
	if name := bell.For(&r.Row, instant(w.now)); bell.Leads(name) {
		w.ring(name)
	}
	switch r.State {
	case store.Available:
		w.cover(r)
	case store.Scheduled, store.Retryable:
		w.waits.insert(waitingAt{r.RunAt.UnixMicro(), r.place, r.n})
	case store.Pending:
		if r.InLine() {
			w.standIn(r)
		}
	}
}

// tally adds a task to the counts of its state, or removes it.
func (w *work) tally(r *row, by int64) {
	if !r.State.Finished() {
		w.sums.count(r.Queue, r.State, by)
	}
	switch r.State {
	case store.Retryable:
		w.sums.regroup(r.failure, by, 0)
	case store.Discarded:
		w.sums.regroup(r.failure, 0, by)
	}
}

// rewrite stores the values and labels of a task, which may have changed.
func (w *work) rewrite(r *row) {
	w.do(q("task.become"), []byte(r.Kind), microsOrNull(r.ExpiresAt), tagsOrNull(r.Tags), bytesOrNull(r.Settings),
		bytesOrNull(r.Args), r.place, r.n)
	w.do(q("label.clear"), r.place, r.n)
	w.addLabels(r)
}

// changeLabels writes the difference between the old and the current labels of a task.
func (w *work) changeLabels(r *row, was []string) {
	is := r.labels()
	for _, label := range was {
		if !slices.Contains(is, label) {
			w.named.remove(labelRow{label, r.ID, r.place, r.n})
		}
	}
	for _, label := range is {
		if !slices.Contains(was, label) {
			w.named.insert(labelRow{label, r.ID, r.place, r.n})
		}
	}
}
