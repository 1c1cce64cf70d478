package mysql

import (
	"context"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Edit implements store.Editor. Each task is a transaction of its own, so that
// an edit of many holds nobody up. One that an open transaction holds is refused.
func (s *Store) Edit(ctx context.Context, e store.Edit) ([]store.Edited, error) {
	edited := make([]store.Edited, len(e.IDs))
	var busy []store.ID
	for i, id := range e.IDs {
		err := s.hurry(ctx, hastyTries, func(w *work) (err error) {
			edited[i], err = w.edit(id, &e.Change)
			return err
		})
		switch {
		case held(err):
			edited[i], busy = store.Edited{ID: id, Result: store.Refused}, append(busy, id)
		case err != nil:
			return nil, wrap("edit", err)
		}
	}
	return edited, wrap("edit", heldError(busy))
}

// edit changes one task, after it has locked its key, and itself.
func (w *work) edit(id store.ID, c *store.Change) (store.Edited, error) {
	missing := store.Edited{ID: id, Result: store.Missing}
	var going days
	if c.Op == store.Retry {
		var err error
		if going, err = w.going(q("days.check")); err != nil {
			return missing, err
		}
	}
	at, key, found, err := w.whereIs(id)
	if err != nil || !found {
		return missing, err
	}
	lap := at.lap
	at.lap = 0
	l := &locks{edited: []ref{at}, keys: map[name]bool{}}
	if key.key != "" {
		l.keys[key] = false
		if c.Op == store.Move {
			l.keys[name{c.Queue, key.tenant, key.key}] = true
		}
	}
	ed := &editing{work: w, change: c}
	if c.Op == store.Retry {
		if err := ed.readNeeds(at, l); err != nil {
			return missing, err
		}
	}
	if err := w.lock(l); err != nil {
		return missing, err
	}
	r := w.rows[at]
	switch {
	case r == nil || r.State.Finished() && going.have(at.place):
		return missing, nil
	case r.lap != lap || nameOf(&r.Task) != key:
		return missing, errAgain
	}
	if _, err := w.clock(); err != nil {
		return missing, err
	}
	ed.row, ed.was = r, r.labels()
	return ed.run()
}

// whereIs finds a task, and its key if it has one.
func (w *work) whereIs(id store.ID) (at ref, key name, found bool, err error) {
	err = w.locate([]any{id[:]}, func(r ref, _ store.ID, _ store.State, of name) { at, key, found = r, of, true })
	return at, key, found, err
}

// readNeeds reads what a task needs, so that it is locked as well.
func (ed *editing) readNeeds(at ref, l *locks) error {
	found, err := ed.needsOf([]ref{at})
	for _, n := range found[at] {
		ed.needing = append(ed.needing, n.Need)
		if l.needed == nil {
			l.needed = map[store.ID]bool{}
		}
		l.needed[n.Task] = true
	}
	return err
}

// editing is one change to one task.
type editing struct {
	*work
	row     *row
	change  *store.Change
	needing []store.Need // what it needs, when it is to be retried
	was     []string     // its labels
}

func (ed *editing) run() (store.Edited, error) {
	r, c := ed.row, ed.change
	before := r.State
	result, err := ed.apply()
	if err != nil {
		return store.Edited{}, err
	}
	ed.saveKeys(ed.keys)
	if c.Op == store.Move && result != store.Changed {
		if err := ed.forgetKeys(ed.keys); err != nil { // one may have been made in vain
			return store.Edited{}, err
		}
	}
	done := store.Edited{ID: r.ID, Result: result, State: r.State}
	switch {
	case r.running():
		done.State = store.Running
	case result == store.Changed && c.Op == store.Delete:
		done.State = 0
	case result == store.Changed && before == store.Pending && c.Op == store.Cancel:
		done.State = store.Cancelled
	}
	return done, nil
}

// apply makes the change if the task's state allows it.
func (ed *editing) apply() (store.EditResult, error) {
	r, c := ed.row, ed.change
	switch {
	case r.awaits:
		return ed.awaiting()
	case r.queues() && c.Op == store.Reprioritize:
		ed.take(r)
		r.Priority = c.Priority
		ed.putDue(r, store.Scheduled)
		ed.save(r)
		return store.Changed, nil
	case r.State == store.Pending && c.Op != store.Cancel && c.Op != store.Delete:
		return store.Refused, nil
	case r.running():
		if c.Op != store.Cancel {
			return store.Refused, nil
		}
		ed.do(q("stop.add"), r.place, r.n, r.lap, textOrNull(c.Reason))
		return store.Requested, nil
	case r.State.Finished() && c.Op != store.Retry && c.Op != store.Delete:
		return store.Refused, nil
	}
	switch c.Op {
	case store.Cancel:
		ed.take(r)
		ed.yield(r)
		r.Reason = c.Reason
		return store.Changed, ed.cancel(r, ed.was)
	case store.Retry:
		return ed.retry(), nil
	case store.Delete:
		return store.Changed, ed.forget()
	case store.Reprioritize:
		ed.relocate(r.Queue, c.Priority)
	case store.Move:
		return ed.move()
	case store.Reschedule:
		ed.reschedule()
	default:
		return store.Refused, nil
	}
	return store.Changed, nil
}

// awaiting edits what only waits for a running task of its key to end: somebody
// may call it off, and that is all.
func (ed *editing) awaiting() (store.EditResult, error) {
	if ed.change.Op != store.Cancel && ed.change.Op != store.Delete {
		return store.Refused, nil
	}
	if is := ed.identity(); is != nil {
		is.awaiting, is.awaitingAt, is.changed = store.ID{}, ref{}, true
	}
	ed.take(ed.row)
	return store.Changed, ed.erase([]*row{ed.row})
}

func (ed *editing) identity() *identity { return ed.keys[nameOf(&ed.row.Task)] }

func (ed *editing) retry() store.EditResult {
	r := ed.row
	switch {
	case r.State == store.Available:
		return store.Refused
	case r.State.Finished():
		if is := ed.identity(); is != nil {
			if !is.task.IsZero() {
				return store.KeyTaken
			}
			is.holds(r)
		}
	}
	ed.reschedule()
	return store.Changed
}

// reschedule gives a task a new run time; a finished one begins again.
func (ed *editing) reschedule() {
	r, c := ed.row, ed.change
	ed.take(r)
	if r.State == store.Available {
		ed.yield(r)
	}
	wait := store.Scheduled
	if r.State == store.Retryable {
		wait = store.Retryable
	}
	if a, any := r.attempt(); any {
		ed.do(q("attempt.insert"), r.place, r.n, r.lap, a.Number, a.Worker[:], a.StartedAt.UnixMicro(), a.EndedAt.UnixMicro(), a.Outcome, nil, nil, nil)
	}
	if r.State.Finished() {
		r.Attempt, r.Crashes, r.Reason, r.FinishedAt = 0, 0, "", time.Time{}
		if len(ed.needing) > 0 {
			ed.needAnew(r, ed.needing)
			ed.flag()
		}
	}
	r.RunAt = instant(runAt(c.RunAt, c.Delay, ed.now))
	r.lap++
	ed.putDue(r, wait)
	ed.save(r)
	ed.changeLabels(r, ed.was)
}

func (ed *editing) move() (store.EditResult, error) {
	r, queue := ed.row, ed.change.Queue
	if r.Queue == queue {
		return store.Changed, nil
	}
	if from := ed.identity(); from != nil {
		to := ed.keys[name{queue, r.Tenant, r.Key}]
		if !to.task.IsZero() {
			return store.KeyTaken, nil
		}
		to.holds(r)
		if from.source.Valid && (!to.source.Valid || from.source.Int64 > to.source.Int64) {
			to.source = from.source
		}
		from.free()
		ed.moveTo(queue)
		return store.Changed, ed.forgetKeys(map[name]*identity{from.name: from})
	}
	ed.moveTo(queue)
	return store.Changed, nil
}

// moveTo gives the task's turn back: it needs one of its new queue.
func (ed *editing) moveTo(queue string) {
	r := ed.row
	ed.yield(r)
	ed.relocate(queue, r.Priority)
	if r.turn != noTurn && r.State == store.Available {
		ed.take(r)
		ed.put(r, store.Pending)
		ed.queueUp(r)
		ed.save(r)
		ed.changeLabels(r, ed.was)
	}
}

// relocate puts a task at the end of another lane.
func (ed *editing) relocate(queue string, priority int16) {
	r := ed.row
	if r.Queue == queue && r.Priority == priority {
		return
	}
	ed.take(r)
	r.Queue, r.Priority = queue, priority
	r.lap++
	ed.put(r, r.State)
	ed.save(r)
}

// forget deletes a task with its history, and its key with the last task of it.
func (ed *editing) forget() error {
	r := ed.row
	ed.take(r)
	if err := ed.erase([]*row{r}); err != nil {
		return err
	}
	is := ed.identity()
	if is == nil {
		return nil
	}
	if is.task == r.ID {
		is.free()
	}
	return ed.forgetKeys(map[name]*identity{is.name: is})
}

// erase deletes rows with all that belongs to them, and tells those that need
// them.
func (w *work) erase(rows []*row) error {
	refs := make([]ref, len(rows))
	gone := map[store.ID]store.State{}
	for i, r := range rows {
		refs[i] = ref{r.place, r.n, 0}
		if r.needed {
			gone[r.ID] = 0
		}
	}
	slices.SortFunc(refs, byPlace)
	inParts(apart(refs), maxSpans, func(part []span) error {
		for _, name := range []string{"task.delete", "attempt.delete", "note.delete", "stops.delete", "labels.delete", "need.clear", "turns.delete"} {
			text, args := among(name, part)
			w.do(text, args...)
		}
		return nil
	})
	for _, at := range refs {
		delete(w.rows, at)
	}
	if len(gone) == 0 {
		return nil
	}
	return w.tell(gone)
}
