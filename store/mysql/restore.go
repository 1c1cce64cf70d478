package mysql

import (
	"context"
	"database/sql"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

var _ store.Restorer = (*Store)(nil)

// Restore implements store.Restorer.
func (s *Store) Restore(
	ctx context.Context, note store.Record, tasks []store.Task,
) (version int64, exist []store.ID, err error) {
	err = s.write(ctx, func(w *work) error {
		if version, _, err = w.putRecord(&store.PutRecord{Record: note}); err != nil {
			return err
		}
		if err := w.findGroups(tasks); err != nil {
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

// findGroups finds out which of the tasks' groups of errors are known. Unknown groups are not created again, because
// nothing is known about them any longer.
func (w *work) findGroups(tasks []store.Task) error {
	w.groups = map[group]bool{}
	var ids []any
	for i := range tasks {
		t := &tasks[i]
		r := rules.Row{Task: *t}
		if t.Detail == nil {
			continue
		}
		if print := r.Fingerprint(); print != "" {
			g := groupOf(t.Queue, t.Kind, print)
			if _, asked := w.groups[g]; !asked {
				w.groups[g], ids = false, append(ids, g[:])
			}
		}
	}
	return inParts(ids, 500, func(part []any) error {
		return w.ask(func(rows *sql.Rows) error {
			g, _, err := readGroup(rows)
			w.groups[g] = true
			return err
		}, list("error.read", "?", len(part)), part...)
	})
}

// remember gives a restored task the error group of its latest failed attempt, and the lap of its last attempt. Each
// attempt has its own lap.
func (w *work) remember(r *row) {
	if r.fingerprint = r.Fingerprint(); r.fingerprint != "" {
		if g := groupOf(r.Queue, r.Kind, r.fingerprint); w.groups[g] {
			r.failure = g
		}
	}
	r.lap = int32(max(len(r.Detail.Attempts)-1, 0))
}

// putBack stores those of the new rows that are restored, with their history, and lists them as finished.
func (w *work) putBack(all []*row) {
	const group = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, '', ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?, 0, ?, ?)"
	in := inserts{work: w, name: "task.restore", group: group, most: 500}
	for _, r := range all {
		if !r.Restored {
			continue
		}
		in.add(r.place, r.n, r.ID[:], []byte(r.Queue), []byte(r.Kind), r.Priority, r.State, r.lap,
			r.Attempt, r.Crashes, r.EnqueuedAt.UnixMicro(), r.RunAt.UnixMicro(), microsOrNull(r.ExpiresAt),
			microsOrZero(r.ClaimedAt), microsOrZero(r.FinishedAt), idOrNull(r.failure), textOrNull(r.fingerprint),
			textOrNull(r.Tenant), textOrNull(r.Key), tagsOrNull(r.Tags), bytesOrNull(r.Settings), textOrNull(r.Reason),
			idOrNull(r.Workflow), textOrNull(r.Partition), r.Needed, r.turn(), bytesOrNull(r.Args))
		w.putHistory(r)
	}
	in.put()
}

func (w *work) putHistory(r *row) {
	d, last := r.Detail, r.lap
	r.Detail, r.Restored = nil, false
	for i := range d.Attempts {
		r.lap = int32(i)
		w.addAttempt(r, &d.Attempts[i])
	}
	r.lap = last
	if d.Output != nil || d.Progress != nil || len(d.Logs) > 0 {
		w.do(q("note.insert"), r.place, r.n, w.next(),
			encodeNote(noteJSON{Output: d.Output, Progress: d.Progress, Logs: d.Logs}))
	}
	w.sums.restore(r.Queue, r.State, r.ref)
	r.stored = r.fields()
}
