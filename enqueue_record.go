package tusk

import (
	"context"

	"github.com/tuskqueue/tusk/store"
)

// EnqueueWith writes a record (see store.Recorder) and stores tasks, both or neither. Use it to recognize a
// repeated request, or to move a cursor together with the work that it covers. The tasks are validated as in
// EnqueueMany.
//
// Errors: ErrConflict if the stored version of the record differs from the given one.
func (c *Client) EnqueueWith(ctx context.Context, record store.Record, tasks []NewTask) ([]Enqueued, error) {
	return c.enqueue(ctx, recordEnqueuer{c.store, record}, tasks)
}

type recordEnqueuer struct {
	store  store.Recorder
	record store.Record
}

func (r recordEnqueuer) Enqueue(ctx context.Context, tasks []store.NewTask) ([]store.Enqueued, error) {
	_, enqueued, err := r.store.PutRecord(ctx, store.PutRecord{Record: r.record, Tasks: tasks})
	return enqueued, err
}
