package mysql

import (
	"database/sql"
	"slices"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// finishOthers ends attempts that need a look at their tasks. It returns those
// whose lease is over.
func (w *work) finishOthers(ends []*end) (late []*end, err error) {
	if len(ends) == 0 {
		return nil, nil
	}
	if err := w.lock(&locks{outcomes: ends}); err != nil {
		return nil, err
	}
	stops, err := w.stopped(ends)
	if err != nil {
		return nil, err
	}
	if _, err := w.clock(); err != nil {
		return nil, err
	}
	for _, e := range ends {
		r := w.rows[ref{e.place, e.n, 0}]
		if r == nil || r.State != store.Available || r.lap != e.lap {
			late = append(late, e)
			continue
		}
		e.row, e.ended = r, w.endOf(e)
		if why, stop := stops[e.ref]; stop && !e.state.Finished() {
			e.state, e.reason = store.Cancelled, why
		}
		if err := w.end(e); err != nil {
			return nil, err
		}
	}
	w.saveKeys(w.keys)
	w.flag()
	return late, nil
}

// stopped returns those of the attempts that somebody wants stopped, with the
// reasons.
func (w *work) stopped(ends []*end) (map[ref]string, error) {
	found := map[ref]string{}
	var refs []ref
	for _, e := range ends {
		if !e.State.Finished() {
			refs = append(refs, ref{e.place, e.n, 0})
		}
	}
	return found, inParts(spansOf(refs), maxSpans, func(part []span) error {
		text, args := among("stop.locked", part)
		return w.ask(func(rows *sql.Rows) error {
			var r ref
			var reason []byte
			err := rows.Scan(&r.place, &r.n, &r.lap, &reason)
			found[r] = string(reason)
			return err
		}, text, args...)
	})
}

// end ends one attempt and puts its task where the outcome says.
func (w *work) end(e *end) error {
	r := e.row
	is := w.keys[nameOf(&r.Task)]
	if is != nil && is.task == r.ID && !is.awaiting.IsZero() && !e.State.Finished() {
		e.state, e.reason = store.Cancelled, "superseded" // the newer one takes its place
	}
	was := r.labels()
	w.history(e)
	r.Attempt, r.Crashes, r.Reason, r.ClaimedAt = e.Attempt, e.Crashes, e.reason, instant(e.claimedAt)
	w.sums.count(r.Queue, store.Running, -1)
	if e.state == e.State && len(e.Then) > 0 {
		if _, err := w.add(e.Then); err != nil {
			return err
		}
	}
	if putOff := e.state == store.Retryable || e.state == store.Scheduled; e.state != store.Available && !(putOff && e.KeepTurn) {
		w.yield(r)
	}
	if e.state.Finished() {
		return w.over(r, e.state, e.ended, was)
	}
	r.lap++
	r.RunAt = instant(w.now)
	switch e.state {
	case store.Pending:
		w.needAnew(r, e.Needs)
		w.putDue(r, store.Scheduled)
	case store.Available:
		w.put(r, store.Available)
	default:
		r.RunAt = instant(w.now + max(e.Delay, 0).Microseconds())
		w.put(r, e.state)
	}
	w.save(r)
	w.changeLabels(r, was)
	return nil
}

// history writes an attempt down.
func (w *work) history(e *end) {
	r := e.row
	w.attempts = append(w.attempts, r.place, r.n, e.lap, e.Task.Attempt, e.worker[:], e.claimedAt, e.ended, e.state,
		textOrNull(e.Error), textOrNull(e.Trace), textOrNull(e.Fingerprint))
	if e.Note != nil {
		w.do(q("note.insert"), r.place, r.n, w.next(), encodeNote(e.Note))
	}
	w.unstop.add(ref{r.place, r.n, 0})
	if e.Error != "" {
		r.failure, r.fingerprint = w.sums.blame(e.Outcome, e.ended), e.Fingerprint
		if rules.Died(e.Outcome) {
			w.sums.rescue(r.Queue, e.state, r.ref)
		}
	}
}

// over puts a task into one of the three final states, which frees its key, for
// what was waiting for it if anything was, and tells those that need it.
func (w *work) over(r *row, state store.State, at int64, was []string) error {
	r.FinishedAt = instant(at)
	w.put(r, state)
	w.save(r)
	w.changeLabels(r, was)
	w.sums.finish(r.Queue, state, r.ref)
	if is := w.keys[nameOf(&r.Task)]; is != nil && is.task == r.ID {
		w.free(is)
	}
	if !r.needed {
		return nil
	}
	return w.tell(map[store.ID]store.State{r.ID: state})
}

// cancel calls off a task that was taken.
func (w *work) cancel(r *row, was []string) error {
	r.lap++
	err := w.over(r, store.Cancelled, w.now, was)
	w.saveKeys(w.keys)
	return err
}

// changeLabels writes the difference between the labels that a task had and
// those that it has.
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

// free frees the key of a finished task, for what was waiting for it if anything
// was.
func (w *work) free(is *identity) {
	is.ends()
	at, waiting := is.free()
	r := w.rows[at]
	if !waiting || r == nil {
		return
	}
	was := r.labels()
	w.tally(r, -1)
	r.lap++
	r.awaits = false
	w.putDue(r, store.Scheduled)
	w.save(r)
	w.changeLabels(r, was)
	if r.needs > 0 { // some of it may have failed while it waited
		w.do(q("doomed.add"), r.place, r.n)
	}
	is.holds(r)
}
