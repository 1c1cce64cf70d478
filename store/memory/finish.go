package memory

import (
	"context"
	"fmt"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Finish implements store.Leaser.
func (s *Store) Finish(ctx context.Context, outcomes []store.Outcome) (lost []store.ID, err error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("finish: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := clock()
	for i := range outcomes {
		o := &outcomes[i]
		if t := s.leased(o.Task.ID, o.Task.Lease); t != nil {
			s.finish(t, o, now)
		} else {
			lost = append(lost, o.Task.ID)
		}
	}
	return lost, nil
}

// finish ends a running attempt and puts its task where the outcome says.
func (s *Store) finish(t *task, o *store.Outcome, now time.Time) {
	state, reason := o.State, o.Reason
	is := s.keys[name{t.Queue, t.Tenant, t.Key}]
	if is != nil && is.awaiting != nil && !state.Finished() {
		state, reason = store.Cancelled, "superseded" // the newer one takes its place
	} else if t.detail.CancelRequested && !state.Finished() {
		state, reason = store.Cancelled, t.why
	}
	ended := now.Add(-max(o.Ago, 0))
	if ended.Before(t.ClaimedAt) {
		ended = t.ClaimedAt
	}
	s.account(t, o, state, ended)
	if o.Note != nil {
		t.write(o.Note)
	}
	s.release(t)
	t.Attempt, t.Crashes, t.Reason = o.Attempt, o.Crashes, reason
	if state == o.State {
		s.enqueue(o.Then, now)
	}
	if putOff := state == store.Retryable || state == store.Scheduled; state != store.Available && !(putOff && o.KeepTurn) {
		s.yield(t)
	}
	switch {
	case state.Finished():
		needed := len(s.children[t.ID]) > 0
		s.end(t, state, ended, now)
		if o.Forget && state == store.Completed && !needed {
			s.forget(t, now)
		}
	case state == store.Pending:
		s.need(t, o.Needs)
		t.RunAt = now
		s.putDue(t, now, store.Scheduled)
	case state == store.Available:
		t.RunAt = now
		s.put(t, state)
	default:
		t.RunAt = now.Add(max(o.Delay, 0))
		s.put(t, state)
	}
}

// release closes the lease of a running task and takes the task out.
func (s *Store) release(t *task) {
	s.take(t)
	if w := s.workers[t.Worker]; w != nil {
		delete(w.holds, t.ID)
	}
	t.Lease, t.Worker = store.Token{}, store.ID{}
	t.detail.CancelRequested = false
}

// end puts a task into one of the three final states, which frees its key, for
// what was waiting for it if anything was.
func (s *Store) end(t *task, state store.State, at, now time.Time) {
	t.FinishedAt = at
	s.put(t, state)
	s.tell(t.ID, state, now)
	is := s.keys[name{t.Queue, t.Tenant, t.Key}]
	if is == nil {
		return
	}
	is.holder, is.awaiting = is.awaiting, nil
	if is.holder != nil {
		is.tasks++
		s.take(is.holder)
		s.putDue(is.holder, now, store.Scheduled)
		if len(is.holder.open) > 0 {
			s.doomed = append(s.doomed, is.holder) // something that it needs may have failed while it waited
		}
	}
}

// account writes an attempt into the task's history, the statistics and the
// error groups.
func (s *Store) account(t *task, o *store.Outcome, state store.State, ended time.Time) {
	past := t.detail.Attempts
	if n := len(past); n > 0 && past[n-1].Error == "" {
		past = past[:n-1] // neither failed nor the latest any more
	}
	t.detail.Attempts = append(past, store.Attempt{
		Number: t.Attempt, Worker: t.Worker, StartedAt: t.ClaimedAt, EndedAt: ended,
		Outcome: state, Error: o.Error, Trace: o.Trace, Fingerprint: o.Fingerprint,
	})
	stat := s.stat(t, ended)
	stat.Waited.Add(t.ClaimedAt.Sub(t.RunAt))
	stat.Ran.Add(o.Ran)
	switch state {
	case store.Completed:
		stat.Completed++
	case store.Discarded:
		stat.Discarded++
	case store.Cancelled:
		stat.Cancelled++
	}
	if o.Error != "" {
		stat.Failed++
		s.blame(t, o, ended)
	}
}

// blame counts a failed attempt in its error group. The task is running, so it
// is among neither the waiting nor the dead of its former group.
func (s *Store) blame(t *task, o *store.Outcome, ended time.Time) {
	at := failure{t.Queue, t.Kind, o.Fingerprint}
	g := s.failures[at]
	if g == nil {
		g = &store.ErrorGroup{Fingerprint: o.Fingerprint, Queue: t.Queue, Kind: t.Kind, First: ended}
		s.failures[at] = g
	}
	g.Count++
	if ended.Before(g.First) {
		g.First = ended
	}
	if !ended.Before(g.Last) {
		g.Last, g.Sample, g.SampleTask = ended, o.Error, t.ID
	}
	t.group = g
}

// slice is what statistics are summed up by; queries add slices up.
type slice struct {
	at          time.Time // a full minute
	queue, kind string
}

func (s *Store) stat(t *task, ended time.Time) *store.Stat {
	at := slice{ended.Truncate(time.Minute), t.Queue, t.Kind}
	stat := s.stats[at]
	if stat == nil {
		stat = &store.Stat{At: at.at, Queue: at.queue, Kind: at.kind}
		s.stats[at] = stat
	}
	return stat
}

// failure is what error groups are told apart by.
type failure struct{ queue, kind, fingerprint string }
