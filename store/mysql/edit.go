package mysql

import (
	"context"
	"errors"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// maxEdited is how many tasks one transaction changes.
const maxEdited = 1000

// Edit implements store.Editor. Tasks are changed some hundred at a time, for no longer than
// claims beside them can do without. One that an open transaction holds is refused.
func (s *Store) Edit(ctx context.Context, e store.Edit) ([]store.Edited, error) {
	var all []store.Edited
	var busy []store.ID
	err := inParts(e.IDs, maxEdited, func(part []store.ID) error {
		edited, held, err := s.editApart(ctx, part, &e.Change)
		all, busy = append(all, edited...), append(busy, held...)
		return err
	})
	if err == nil {
		err = heldError(busy)
	}
	if err != nil && busy == nil {
		all = nil
	}
	return all, wrap("edit", err)
}

// editApart changes tasks, by halves where somebody holds one of them or changes one at the
// same time. It returns those that are held.
func (s *Store) editApart(ctx context.Context, ids []store.ID, c *store.Change) (edited []store.Edited, busy []store.ID, err error) {
	tried := hastyTries
	if len(ids) > 1 {
		tried = fewTries
	}
	err = s.hurry(ctx, tried, func(w *work) (err error) {
		edited, err = w.edit(ids, c)
		return err
	})
	switch {
	case !held(err) && !errors.Is(err, errAgain):
		return edited, nil, err
	case len(ids) > 1:
		half := len(ids) / 2
		edited, busy, err = s.editApart(ctx, ids[:half], c)
		if err != nil {
			return edited, busy, err
		}
		more, others, err := s.editApart(ctx, ids[half:], c)
		return append(edited, more...), append(busy, others...), err
	case held(err):
		return []store.Edited{{ID: ids[0], Result: store.Refused}}, ids, nil
	}
	return nil, nil, err
}

// edit changes tasks, after it has locked their keys, and themselves.
func (w *work) edit(ids []store.ID, c *store.Change) (edited []store.Edited, err error) {
	var going days
	if c.Op == store.Retry {
		if going, err = w.going(q("days.check")); err != nil {
			return nil, err
		}
	}
	found, err := w.whereAre(ids)
	if err != nil {
		return nil, err
	}
	l := &locks{keys: map[name]bool{}, needed: map[store.ID]bool{}}
	for _, f := range found {
		l.edited = append(l.edited, f.at())
		if f.key.key != "" {
			if _, named := l.keys[f.key]; !named {
				l.keys[f.key] = false
			}
			if c.Op == store.Move {
				l.keys[name{c.Queue, f.key.tenant, f.key.key}] = true
			}
		}
	}
	needing := map[ref][]openNeed{}
	if c.Op == store.Retry {
		if needing, err = w.needsOf(l.edited); err != nil {
			return nil, err
		}
		for _, needs := range needing {
			for _, n := range needs {
				l.needed[n.Task] = true
			}
		}
	}
	if err := w.lock(l); err != nil {
		return nil, err
	}
	if _, err := w.clock(); err != nil {
		return nil, err
	}
	for _, f := range found {
		if r := w.rows[f.at()]; r != nil && (r.lap != f.lap || nameOf(&r.Task) != f.key) {
			return nil, errAgain
		}
	}
	for _, id := range ids {
		f, known := found[id]
		r := w.rows[f.at()]
		if !known || r == nil || r.State.Finished() && going.have(f.place) {
			edited = append(edited, store.Edited{ID: id, Result: store.Missing})
			continue
		}
		ed := &editing{work: w, row: r, change: c, was: r.labels()}
		for _, n := range needing[f.at()] {
			ed.needing = append(ed.needing, n.Need)
		}
		one, err := ed.run()
		if err != nil {
			return nil, err
		}
		edited = append(edited, one)
	}
	return edited, nil
}

// place is where a task was found, and with which key.
type place struct {
	ref
	key name
}

func (p place) at() ref { return ref{p.place, p.n, 0} }

// whereAre finds tasks.
func (w *work) whereAre(ids []store.ID) (map[store.ID]place, error) {
	found, args := map[store.ID]place{}, make([]any, len(ids))
	for i := range ids {
		args[i] = ids[i][:]
	}
	return found, w.locate(args, func(r ref, id store.ID, _ store.State, key name) { found[id] = place{r, key} })
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
		ed.toStop = append(ed.toStop, r.place, r.n, r.lap, textOrNull(c.Reason))
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
		ed.attempts = append(ed.attempts, r.place, r.n, r.lap, a.Number, a.Worker[:], a.StartedAt.UnixMicro(), a.EndedAt.UnixMicro(), a.Outcome, nil, nil, nil)
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
	is.forgets(r.ID)
	return ed.forgetKeys(map[name]*identity{is.name: is})
}

// erase deletes rows with all that belongs to them, and tells those that need
// them.
func (w *work) erase(rows []*row) error {
	gone := map[store.ID]store.State{}
	for _, r := range rows {
		at := ref{r.place, r.n, 0}
		w.erased.add(at)
		delete(w.rows, at)
		delete(w.ids, r.ID)
		if r.needed {
			gone[r.ID] = 0
		}
	}
	if len(gone) == 0 {
		return nil
	}
	return w.tell(gone)
}
