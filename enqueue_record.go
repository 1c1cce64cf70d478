package tusk

import (
	"context"

	"github.com/tuskqueue/tusk/store"
)

// EnqueueWith writes a record (see store.Recorder) and stores tasks, both or
// neither: that is how a repeated request is recognised, or a cursor moves
// together with what it stands for. The tasks are checked as by EnqueueMany.
//
// Errors: ErrConflict when the record's version is another than the one given.
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
