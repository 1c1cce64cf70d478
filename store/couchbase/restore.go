package couchbase

import (
	"context"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// Restore implements store.Restorer. The record is the root of a unit with all tasks: if the process dies, either
// nothing was restored, or the next reader of the record or the sweep does the rest.
func (s *Store) Restore(
	ctx context.Context, note store.Record, tasks []store.Task,
) (version int64, exist []store.ID, err error) {
	defer says(&err, "restore")
	version, err = s.put(ctx, &note, func(b *rules.Batch) (err error) {
		exist, err = b.Restore(tasks)
		return err
	})
	return version, exist, alone(err)
}

// remember gives a restored task its history.
func (t *task) remember(r *rules.Row) {
	d := r.Detail
	t.Back, t.Claimed, t.Fingerprint = true, micros(r.ClaimedAt), r.Fingerprint()
	for i := range d.Attempts {
		t.Past = append(t.Past, pastOf(&d.Attempts[i]))
	}
	t.write(&store.Note{Output: d.Output, Progress: d.Progress, Logs: d.Logs})
}
