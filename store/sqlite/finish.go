package sqlite

import (
	"context"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// Finish implements store.Leaser.
func (s *Store) Finish(ctx context.Context, outcomes []store.Outcome) (lost []store.ID, err error) {
	if len(outcomes) == 0 {
		return nil, nil
	}
	err = s.writeMany(ctx, len(outcomes), func(w *work) error {
		lost, err = w.finish(outcomes)
		return err
	})
	return answer(lost, "finish", err)
}

// finish writes plain completions at once and lets the rules decide all other outcomes. It keeps the order of two
// outcomes of one task.
func (w *work) finish(outcomes []store.Outcome) (lost []store.ID, err error) {
	var rest []*store.Outcome
	later := map[store.ID]bool{}
	for i := range outcomes {
		o := &outcomes[i]
		if plain(o) && !later[o.Task.ID] {
			done, err := w.complete(o)
			if err != nil {
				return nil, err
			}
			if done {
				continue
			}
		}
		if _, err := w.leasesOf(o.Task.Lease); err != nil {
			return nil, err
		}
		later[o.Task.ID] = true
		rest = append(rest, o)
	}
	if len(rest) == 0 {
		return nil, nil
	}
	err = w.decide(func(b *rules.Batch) error {
		lost, err = b.Finish(rest)
		return err
	})
	return lost, err
}

// plain reports whether an attempt ended as most do: it completed its task, nothing follows from that, and everything
// to record fits into the task's row.
func plain(o *store.Outcome) bool {
	return o.State == store.Completed && o.Error == "" && o.Reason == "" && o.Note == nil && o.Attempt == o.Task.Attempt &&
		len(o.Then) == 0 && (!o.Forget || o.Task.Key == "" && len(o.Task.Tags) == 0)
}

// complete writes a plain completion of a task that no other task needs, that was not told to stop, and that no rerun
// waits for. Its update is also the fence: it finds the task only while the task is in the log, at a position of the
// lease.
func (w *work) complete(o *store.Outcome) (bool, error) {
	leases, err := w.leasesOf(o.Task.Lease)
	if err != nil {
		return false, err
	}
	for _, l := range leases {
		claimed := at(l.claimedAt)
		ended := rules.EndedAt(o, claimed, w.time())
		name, args := "finish.complete", []any{o.Attempt, o.Crashes, claimed, ended, l.worker, o.Task.ID, l.lane,
			l.first, l.last}
		if o.Forget {
			name, args = "finish.forget", args[5:]
		} else if o.Task.Key != "" {
			name, args = "finish.keyed", append(args, o.Task.Queue, o.Task.Tenant, o.Task.Key)
		}
		done, err := w.run(name, args...)
		if err != nil {
			return false, err
		}
		if done > 0 {
			if o.Task.Key != "" {
				if _, err := w.run("key.free", o.Task.Queue, o.Task.Tenant, o.Task.Key); err != nil {
					return false, err
				}
			}
			if err := w.release(l, o.Task); err != nil {
				return false, err
			}
			return true, w.account(o, store.Completed, ended, claimed.Sub(o.Task.RunAt))
		}
	}
	return false, nil
}

// ended writes the end of an attempt, except for the next state of the task.
func (w *work) ended(e *rules.End) error {
	t, o, a := w.rows[e.Task.ID], e.Outcome, &e.Attempt
	leases, err := w.leasesOf(o.Task.Lease)
	if err != nil {
		return err
	}
	if err := w.release(covering(leases, t.lane, t.pos), &t.Task); err != nil {
		return err
	}
	if t.Stopping {
		if _, err := w.run("stop.drop", t.ID); err != nil {
			return err
		}
	}
	if err := w.account(o, a.Outcome, a.EndedAt, e.Waited); err != nil {
		return err
	}
	if a.Outcome.Finished() && a.Error == "" && a.Trace == "" && a.Fingerprint == "" && a.Number == o.Attempt {
		t.runner = a.Worker // the task's row has room for the attempt
	} else if err := w.addAttempt(t.num, a); err != nil {
		return err
	}
	if o.Error != "" {
		if t.group, err = w.blame(o, a.EndedAt); err != nil {
			return err
		}
	}
	if o.Note != nil {
		return w.record(t.num, o.Note)
	}
	return nil
}

// addAttempt writes an attempt into a task's history, which keeps the failed attempts and the latest one.
func (w *work) addAttempt(num int64, a *store.Attempt) error {
	if _, err := w.run("attempt.trim", num); err != nil {
		return err
	}
	_, err := w.run("attempt.add", num, a.Number, a.Worker, a.StartedAt, a.EndedAt, a.Outcome,
		nullText(a.Error), nullText(a.Trace), nullText(a.Fingerprint))
	return err
}

// release removes a task from its lease and from the running tasks of its lane.
func (w *work) release(l *lease, t *store.Task) error {
	of, err := w.lane(t.Queue, t.Priority)
	if err != nil {
		return err
	}
	of.running--
	of.changed = true
	l.open--
	l.changed = true
	return nil
}

// account adds an attempt to the statistics of the minute in which it ended.
func (w *work) account(o *store.Outcome, goes store.State, ended time.Time, waited time.Duration) error {
	kind, err := w.kind(o.Task.Queue, o.Task.Kind)
	if err != nil {
		return err
	}
	at := minute{micros(ended.Truncate(time.Minute)), kind}
	if w.stats == nil {
		w.stats = map[minute]*store.Stat{}
	}
	if w.stats[at] == nil {
		w.stats[at] = &store.Stat{}
	}
	rules.Count(w.stats[at], o, goes, waited)
	return nil
}
