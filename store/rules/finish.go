package rules

import (
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Superseded is the reason of a task that was cancelled because a newer one with its key took its place.
const Superseded = "superseded"

// Finish ends attempts in order, puts each task into the state of its outcome, and returns the ids of the outcomes
// that it did not accept. An outcome is accepted if the task is running under the lease that the outcome names.
func (b *Batch) Finish(outcomes []*store.Outcome) (lost []store.ID, err error) {
	var w Want
	of := make([]store.ID, len(outcomes))
	for i, o := range outcomes {
		of[i] = o.Task.ID
		w.Keys = append(w.Keys, KeyName{o.Task.Queue, o.Task.Tenant, o.Task.Key})
		w.enqueue(o.Then)
		w.needs(o.Needs)
	}
	again := func(o *store.Outcome) bool { return o.State == store.Pending }
	if err := b.reach(w, of, slices.ContainsFunc(outcomes, again)); err != nil {
		return nil, err
	}
	for _, o := range outcomes {
		r, err := b.task(o.Task.ID)
		if err != nil {
			return nil, err
		}
		if r == nil || r.State != store.Running || r.Lease != o.Task.Lease || r.Lease == (store.Token{}) {
			lost = append(lost, o.Task.ID)
			continue
		}
		if err := b.finish(r, o); err != nil {
			return nil, err
		}
	}
	return lost, nil
}

// finish ends the attempt of a running task.
func (b *Batch) finish(r *Row, o *store.Outcome) error {
	k, err := b.key(r.key())
	if err != nil {
		return err
	}
	state, reason := b.goes(r, k, o)
	e := &End{Task: r, Outcome: o, Waited: r.ClaimedAt.Sub(r.RunAt), Attempt: store.Attempt{
		Number: r.Attempt, Worker: r.Worker, StartedAt: r.ClaimedAt, EndedAt: EndedAt(o, r.ClaimedAt, b.Now),
		Outcome: state, Error: o.Error, Trace: o.Trace, Fingerprint: o.Fingerprint,
	}}
	b.Ends = append(b.Ends, e)
	r.Lease, r.Worker, r.Stopping, r.StopReason = store.Token{}, store.ID{}, false, ""
	r.Attempt, r.Crashes, r.Reason = o.Attempt, o.Crashes, reason
	if state == o.State { // the task still holds its key, which a next task may share
		if _, err := b.enqueueAll(o.Then); err != nil {
			return err
		}
	}
	if !keepsTurn(o, state) {
		r.HasTurn = false
	}
	if state.Finished() {
		return b.finished(r, state, e)
	}
	r.RunAt = b.Now
	switch state {
	case store.Pending:
		if err := b.need(r, o.Needs); err != nil {
			return err
		}
		b.putDue(r, store.Scheduled)
	case store.Available:
		b.put(r, state)
	default:
		r.RunAt = b.runAt(time.Time{}, o.Delay)
		b.put(r, state)
	}
	return nil
}

// goes returns the state that a task goes to at the end of an attempt, and the reason. A task that would run again is
// cancelled instead if a newer task with its key waits for its end, or if it was told to stop. The reason of that
// request takes precedence over the worker's.
func (b *Batch) goes(r *Row, k *Key, o *store.Outcome) (store.State, string) {
	switch {
	case o.State == store.Cancelled && r.StopReason != "":
		return store.Cancelled, r.StopReason
	case o.State.Finished():
	case k != nil && k.Holder == r.ID && !k.Awaiting.IsZero():
		return store.Cancelled, Superseded
	case r.Stopping:
		return store.Cancelled, r.StopReason
	}
	return o.State, o.Reason
}

// keepsTurn reports whether a task that will run again keeps its turn. A task that is handed back always does.
func keepsTurn(o *store.Outcome, goes store.State) bool {
	putOff := goes == store.Retryable || goes == store.Scheduled
	return goes == store.Available || putOff && o.KeepTurn
}

// EndedAt returns when an attempt ended, by the engine's clock, but not before its claim.
func EndedAt(o *store.Outcome, claimed, now time.Time) time.Time {
	if at := now.Add(-max(o.Ago, 0)); at.After(claimed) {
		return at
	}
	return claimed
}

// finished ends a task together with its attempt.
func (b *Batch) finished(r *Row, state store.State, e *End) error {
	needed := r.Needed
	if err := b.end(r, state, e.Attempt.EndedAt); err != nil {
		return err
	}
	if e.Outcome.Forget && state == store.Completed && !needed {
		return b.delete(r)
	}
	return nil
}

// end puts a task into one of the three final states. It informs the tasks that need it, and frees its key: if
// another task awaits the key, that task becomes the holder.
func (b *Batch) end(r *Row, state store.State, at time.Time) error {
	r.FinishedAt = at
	b.put(r, state)
	if err := b.tell(r, state); err != nil {
		return err
	}
	k, err := b.key(r.key())
	if err != nil || k == nil || k.Holder != r.ID {
		return err
	}
	k.Ended, k.Holder, k.Awaiting = r.ID, k.Awaiting, store.ID{}
	if k.Holder.IsZero() {
		return nil
	}
	k.Tasks++
	next, err := b.task(k.Holder)
	if err != nil || next == nil {
		return err
	}
	next.Awaits = false
	b.putDue(next, store.Scheduled)
	if next.Open > 0 { // a task that it needs may have failed while it waited
		b.Doubts = append(b.Doubts, next.ID)
	}
	return nil
}

// Count adds the end of an attempt to the statistics.
func Count(s *store.Stat, o *store.Outcome, goes store.State, waited time.Duration) {
	if o.Unbegun && goes == store.Scheduled {
		return
	}
	s.Waited.Add(waited)
	s.Ran.Add(o.Ran)
	switch goes {
	case store.Completed:
		s.Completed++
	case store.Discarded:
		s.Discarded++
	case store.Cancelled:
		s.Cancelled++
	}
	if o.Error != "" {
		s.Failed++
	}
}

// Blame counts a failed attempt in its error group.
func Blame(g *store.ErrorGroup, e *End) {
	ended := e.Attempt.EndedAt
	if g.Count == 0 || ended.Before(g.First) {
		g.First = ended
	}
	if g.Count++; !ended.Before(g.Last) {
		g.Last, g.Sample, g.SampleTask = ended, e.Outcome.Error, e.Task.ID
	}
}
