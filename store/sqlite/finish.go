package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Finish implements store.Leaser.
func (s *Store) Finish(ctx context.Context, outcomes []store.Outcome) (lost []store.ID, err error) {
	if len(outcomes) == 0 {
		return nil, nil
	}
	err = s.write(ctx, true, func(w *work) error {
		lost, err = w.finish(outcomes)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("finish: %w", err)
	}
	return lost, nil
}

func (w *work) finish(outcomes []store.Outcome) (lost []store.ID, err error) {
	for i := range outcomes {
		accepted, err := w.finishOne(&outcomes[i])
		if err != nil {
			return nil, err
		}
		if !accepted {
			lost = append(lost, outcomes[i].Task.ID)
		}
	}
	return lost, nil
}

// end is an attempt's end as it is written.
type end struct {
	*store.Outcome
	num     int64 // of the task, when it was looked up
	lease   *lease
	state   store.State // where the task goes
	reason  string
	ended   int64
	failure int64 // the error group; 0: the attempt did not fail
}

// finishOne ends an attempt if its lease is open, and reports whether it was.
func (w *work) finishOne(o *store.Outcome) (bool, error) {
	leases, err := w.leasesOf(o.Task.Lease)
	if err != nil {
		return false, err
	}
	for _, l := range leases {
		e := end{Outcome: o, lease: l, state: o.State, reason: o.Reason, ended: max(after(w.now, -max(o.Ago, 0)), l.claimedAt)}
		if accepted, err := w.end(&e); accepted || err != nil {
			return accepted, err
		}
	}
	return false, nil
}

// end writes the end of an attempt of a lease. Its update is the fence as well:
// it finds the task only while it is in the log, at a position of this lease.
func (w *work) end(e *end) (bool, error) {
	if e.plain() {
		if e.Forget {
			if done, err := w.endForgotten(e); done || err != nil {
				return done, err
			}
		}
		done, err := w.run("finish.complete", e.Attempt, e.Crashes, e.lease.claimedAt, e.ended, e.lease.worker,
			e.Task.ID, e.lease.lane, e.lease.first, e.lease.last)
		if err != nil {
			return false, err
		}
		if done > 0 {
			return true, w.completed(e)
		}
	}
	r, err := w.one("lease.holds", e.Task.ID, e.lease.lane, e.lease.first, e.lease.last)
	if err != nil || r == nil {
		return false, err
	}
	e.num = r.int(0)
	for _, step := range []func(*end) error{w.override, w.history, w.then, w.settle, w.follow} {
		if err := step(e); err != nil {
			return false, err
		}
	}
	return true, nil
}

// endForgotten ends an attempt whose task is not to be kept, unless others need it.
func (w *work) endForgotten(e *end) (bool, error) {
	r, err := w.one("finish.forget", e.Task.ID, e.lease.lane, e.lease.first, e.lease.last)
	if err != nil || r == nil {
		return false, err
	}
	w.wrote = true
	for _, name := range []string{"forget.attempts", "forget.note", "forget.logs"} {
		if _, err := w.run(name, r.int(0)); err != nil {
			return false, err
		}
	}
	if r.int(1) > 0 {
		if _, err := w.run("need.drop", e.Task.ID); err != nil {
			return false, err
		}
	}
	if err := w.dropTags(&stored{Task: *e.Task}); err != nil {
		return false, err
	}
	if err := w.completed(e); err != nil || e.Task.Key == "" {
		return true, err
	}
	k, err := w.key(nameOf(e.Task))
	if err != nil {
		return false, err
	}
	k.tasks--
	return true, w.writeKey(k)
}

// completed does what is left to do for a plain end.
func (w *work) completed(e *end) error {
	if err := w.then(e); err != nil {
		return err
	}
	return w.follow(e)
}

// plain reports whether the attempt did what most do: it completed its task, and
// there is nothing to note about it that the task's row has no room for. What comes
// after a task with a key must meet it while it still has the key.
func (e *end) plain() bool {
	return e.State == store.Completed && e.Error == "" && e.Reason == "" && e.Note == nil && e.Attempt == e.Task.Attempt &&
		(len(e.Then) == 0 || e.Task.Key == "")
}

// override cancels a task that was to run again when a newer one of its key awaits
// its end, or somebody has asked it to stop.
func (w *work) override(e *end) error {
	if e.state.Finished() {
		return nil
	}
	if e.Task.Key != "" {
		k, err := w.key(nameOf(e.Task))
		if err != nil {
			return err
		}
		if k.task == e.Task.ID && !k.awaiting.IsZero() {
			e.state, e.reason = store.Cancelled, "superseded"
			return nil
		}
	}
	if any, err := w.anyStops(); !any || err != nil {
		return err
	}
	r, err := w.one("stop.reason", e.Task.ID)
	if r != nil {
		e.state, e.reason = store.Cancelled, r.text(0)
	}
	return err
}

// then enqueues what comes with an outcome, unless that was overridden.
func (w *work) then(e *end) error {
	if len(e.Then) == 0 || e.state != e.State {
		return nil
	}
	_, err := w.enqueue(e.Then)
	return err
}

// history writes the attempt down, and counts it in its error group.
func (w *work) history(e *end) error {
	if _, err := w.run("attempt.trim", e.num); err != nil {
		return err
	}
	if _, err := w.run("attempt.add", e.num, e.Task.Attempt, e.lease.worker, e.lease.claimedAt, e.ended, e.state,
		nullText(e.Error), nullText(e.Trace), nullText(e.Fingerprint)); err != nil {
		return err
	}
	if e.Error != "" {
		var err error
		if e.failure, err = w.blame(e); err != nil {
			return err
		}
	}
	if e.Note != nil {
		return w.record(e.num, e.Note)
	}
	return nil
}

// settle puts the task where the outcome says.
func (w *work) settle(e *end) error {
	var failure any
	if e.failure != 0 {
		failure = e.failure
	}
	r, err := w.one("finish.settle", e.state, e.Attempt, e.Crashes, nullText(e.reason), failure, e.lease.claimedAt, e.num)
	if err != nil {
		return err
	}
	w.wrote = true
	t := &stored{Task: *e.Task, num: e.num, failure: r.int(0), needs: r.int(1), needed: !r.null(2), turn: r.int(3)}
	if !e.keepsTurn() {
		if err := w.yield(t); err != nil {
			return err
		}
	}
	switch {
	case e.state.Finished():
		return w.settleFinished(e, t)
	case e.state == store.Available:
		return w.putAvailable(t, t.Queue, t.Priority, w.now)
	case e.state == store.Pending:
		if err := w.need(t, e.Needs); err != nil {
			return err
		}
		return w.putDue(t, t.Queue, t.Priority, w.now, store.Scheduled)
	}
	return w.putWaiting(t, t.Queue, e.state, after(w.now, max(e.Delay, 0)))
}

func (w *work) settleFinished(e *end, t *stored) error {
	w.regroup(t.failure, e.state, 1)
	if _, err := w.run("finish.end", e.ended, e.num); err != nil || !t.needed {
		return err
	}
	return w.tell(t.ID, e.state)
}

// keepsTurn reports whether a task that will run again keeps its turn: one that is
// handed back does.
func (e *end) keepsTurn() bool {
	return e.state == store.Available || e.KeepTurn && (e.state == store.Retryable || e.state == store.Scheduled)
}

// follow does what every accepted end brings with it.
func (w *work) follow(e *end) error {
	l, err := w.lane(e.Task.Queue, e.Task.Priority)
	if err != nil {
		return err
	}
	l.running--
	l.changed = true
	e.lease.open--
	e.lease.changed = true
	if err := w.unstop(e.Task.ID); err != nil {
		return err
	}
	if err := w.account(e); err != nil {
		return err
	}
	if e.Task.Key != "" && e.state.Finished() {
		return w.free(nameOf(e.Task), e.Task.ID)
	}
	return nil
}

// unstop forgets that somebody wanted a task stopped.
func (w *work) unstop(id store.ID) error {
	if any, err := w.anyStops(); !any || err != nil {
		return err
	}
	_, err := w.run("stop.drop", id)
	return err
}

// anyStops reports whether somebody wants any task stopped. Usually nobody does.
func (w *work) anyStops() (bool, error) {
	if w.stops == unknown {
		r, err := w.one("stop.any")
		if err != nil {
			return false, err
		}
		w.stops = none
		if r != nil {
			w.stops = some
		}
	}
	return w.stops == some, nil
}

// account adds the attempt to the statistics of the minute in which it ended.
func (w *work) account(e *end) error {
	kind, err := w.kind(e.Task.Queue, e.Task.Kind)
	if err != nil {
		return err
	}
	at := minute{e.ended - e.ended%time.Minute.Microseconds(), kind}
	sum := w.stats[at]
	if sum == nil {
		if w.stats == nil {
			w.stats = map[minute]*store.Stat{}
		}
		sum = &store.Stat{}
		w.stats[at] = sum
	}
	sum.Waited.Add(time.Duration(e.lease.claimedAt-micros(e.Task.RunAt)) * time.Microsecond)
	sum.Ran.Add(e.Ran)
	switch e.state {
	case store.Completed:
		sum.Completed++
	case store.Discarded:
		sum.Discarded++
	case store.Cancelled:
		sum.Cancelled++
	}
	if e.Error != "" {
		sum.Failed++
	}
	return nil
}
