package ledgers

import (
	"context"
	"fmt"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// Records implements store.Recorder.
func (s *Store) Records(ctx context.Context, kind string) ([]store.Record, error) {
	return atHome(ctx, s, func(ctx context.Context, e *postgres.Store) ([]store.Record, error) {
		return e.Records(ctx, kind)
	})
}

// PutRecord implements store.Recorder. Tasks that come with a record live at home with it.
// The error is store.ErrUnsupported when the key of one, or what it needs, lives elsewhere.
func (s *Store) PutRecord(ctx context.Context, p store.PutRecord) (int64, []store.Enqueued, error) {
	if err := s.atHome(ctx, p.Tasks); err != nil {
		return 0, nil, err
	}
	type answer struct {
		version int64
		results []store.Enqueued
	}
	a, err := atHome(ctx, s, func(ctx context.Context, e *postgres.Store) (a answer, err error) {
		a.version, a.results, err = e.PutRecord(ctx, p)
		return a, err
	})
	return a.version, a.results, err
}

// UpdateRecords implements store.Recorder, with PutRecord's limits.
func (s *Store) UpdateRecords(ctx context.Context, term int64, puts []store.PutRecord) ([]store.Updated, error) {
	for i := range puts {
		if err := s.atHome(ctx, puts[i].Tasks); err != nil {
			return nil, err
		}
	}
	return atHome(ctx, s, func(ctx context.Context, e *postgres.Store) ([]store.Updated, error) {
		return e.UpdateRecords(ctx, term, puts)
	})
}

// atHome fails unless tasks may live at home.
func (s *Store) atHome(ctx context.Context, tasks []store.NewTask) error {
	if len(tasks) == 0 {
		return nil
	}
	all, err := s.ledgers(ctx)
	if err != nil {
		return err
	}
	needs, err := s.placesOfNeeds(ctx, all, tasks)
	if err != nil {
		return err
	}
	for _, at := range needs {
		if at != 0 {
			return fmt.Errorf("%w: %w", store.ErrNotCommitted, errSpread)
		}
	}
	for i := range tasks {
		if at, _ := s.fixed(&tasks[i], len(all)); tasks[i].Key != "" && at != 0 {
			return fmt.Errorf("%w: %w: a task with a key lives in the ledger of its key, not with a record",
				store.ErrNotCommitted, store.ErrUnsupported)
		}
	}
	return nil
}
