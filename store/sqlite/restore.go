package sqlite

import (
	"context"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

var _ store.Restorer = (*Store)(nil)

// Restore implements store.Restorer.
func (s *Store) Restore(
	ctx context.Context, note store.Record, tasks []store.Task,
) (version int64, exist []store.ID, err error) {
	err = s.write(ctx, true, func(w *work) error {
		if version, err = w.putRecord(note); err != nil {
			return err
		}
		return w.decide(func(b *rules.Batch) error {
			exist, err = b.Restore(tasks)
			return err
		})
	})
	if err != nil {
		return 0, nil, wrap("restore", err)
	}
	return version, exist, nil
}

// restore writes a task from an archive, with its history.
func (w *work) restore(r *rules.Row) error {
	num, group, err := w.addFinished(r)
	if err != nil {
		return err
	}
	w.regroup(group, r.State, 1)
	if err := w.addTags(r.ID, r.Tags); err != nil {
		return err
	}
	d := r.Detail
	for i := range d.Attempts {
		if err := w.addAttempt(num, &d.Attempts[i]); err != nil {
			return err
		}
	}
	return w.record(num, &store.Note{Output: d.Output, Progress: d.Progress, Logs: d.Logs})
}

// addFinished writes the row of a finished task, and returns its number and its error group.
func (w *work) addFinished(r *rules.Row) (num, group int64, err error) {
	kind, err := w.kind(r.Queue, r.Kind)
	if err != nil {
		return 0, 0, err
	}
	if print := r.Fingerprint(); print != "" {
		of, err := w.one("error.find", print, kind)
		if err != nil {
			return 0, 0, err
		}
		if of != nil {
			group = of.int(0)
		}
	}
	tags, err := encodeTags(r.Tags)
	if err != nil {
		return 0, 0, err
	}
	var partition any // null if the task does not run in turns
	if r.Turn {
		partition = r.Partition
	}
	w.wrote = true
	added, err := w.one("task.restore", r.ID, kind, r.Priority, r.State, nullBytes(r.Args), nullText(r.Tenant), tags,
		nullText(r.Key), nullBytes(r.Settings), r.Attempt, r.Crashes, nullText(r.Reason), nullCount(group), r.EnqueuedAt,
		r.RunAt, r.ExpiresAt, r.ClaimedAt, r.FinishedAt, nullID(r.Workflow), partition, openOf(r))
	if err != nil {
		return 0, 0, err
	}
	return added.int(0), group, nil
}
