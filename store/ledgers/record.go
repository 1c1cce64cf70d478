package ledgers

import (
	"context"
	"fmt"
	"slices"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// Records implements store.Recorder.
func (s *Store) Records(ctx context.Context, f store.RecordFilter) ([]store.Record, error) {
	return atHome(ctx, s, func(ctx context.Context, e *postgres.Store) ([]store.Record, error) {
		return e.Records(ctx, f)
	})
}

// PutRecord implements store.Recorder. Home stores the tasks that come with a record. Tasks whose keys belong in other
// ledgers are stored as letters.
func (s *Store) PutRecord(ctx context.Context, p store.PutRecord) (int64, []store.Enqueued, error) {
	all, mail, err := s.withRecords(ctx, []*store.PutRecord{&p})
	if err != nil {
		return 0, nil, err
	}
	type answer struct {
		version int64
		results []store.Enqueued
	}
	a, err := ask(ctx, all[0], func(ctx context.Context, e *postgres.Store) (a answer, err error) {
		a.version, a.results, err = e.PutRecord(ctx, p)
		return a, err
	})
	if err == nil {
		err = s.sent(ctx, all, mail, a.results)
	}
	return a.version, a.results, err
}

// UpdateRecords implements store.Recorder.
func (s *Store) UpdateRecords(ctx context.Context, term int64, puts []store.PutRecord) ([]store.Updated, error) {
	puts = slices.Clone(puts)
	list := make([]*store.PutRecord, len(puts))
	for i := range puts {
		list[i] = &puts[i]
	}
	all, mail, err := s.withRecords(ctx, list)
	if err != nil {
		return nil, err
	}
	updated, err := ask(ctx, all[0], func(ctx context.Context, e *postgres.Store) ([]store.Updated, error) {
		return e.UpdateRecords(ctx, term, puts)
	})
	if err == nil {
		results := make([][]store.Enqueued, len(updated))
		for i := range updated {
			results[i] = updated[i].Enqueued
		}
		err = s.sent(ctx, all, mail, results...)
	}
	return updated, err
}

// withRecords prepares the tasks that come with records for home. It returns the tasks of the letters, by letter.
func (s *Store) withRecords(
	ctx context.Context, puts []*store.PutRecord,
) (all []*ledger, mail map[store.ID]store.ID, err error) {
	if all, err = s.ledgers(ctx); err != nil {
		return nil, nil, err
	}
	mail = map[store.ID]store.ID{}
	heard := make([][]postgres.Elsewhere, len(all))
	for _, p := range puts {
		tasks, sent, err := s.wrapUp(len(all), 0, p.Tasks)
		if err != nil {
			return nil, nil, err
		}
		for task, letter := range sent {
			mail[letter] = task
		}
		p.Tasks = tasks
		far, err := heardBefore(ctx, all, 0, tasks, nil, sent, s.parentsOf)
		if err != nil {
			return nil, nil, fmt.Errorf("%w: %w", store.ErrNotCommitted, err)
		}
		heard[0] = append(heard[0], far...)
	}
	if err := s.hear(ctx, all, heard); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", store.ErrNotCommitted, err)
	}
	return all, mail, nil
}

// sent delivers the letters that were stored with records, and replaces their results by those of their tasks. The
// leader delivers those that fail here.
func (s *Store) sent(
	ctx context.Context, all []*ledger, mail map[store.ID]store.ID, results ...[]store.Enqueued,
) error {
	var ids []store.ID
	var places []*store.Enqueued
	for _, part := range results {
		for i := range part {
			if _, is := mail[part[i].ID]; is {
				ids, places = append(ids, part[i].ID), append(places, &part[i])
			}
		}
	}
	if len(ids) == 0 {
		return nil
	}
	answer, err := s.sendAll(ctx, all, all[0], ids)
	if err != nil {
		err = fmt.Errorf("%w: the record is written, and its tasks follow: %v", store.ErrUnavailable, err)
	}
	for i, id := range ids {
		task := mail[id]
		if got := answer[task]; got.Result != 0 {
			*places[i] = got
		} else if err == nil {
			err = fmt.Errorf("%w: it is not known whether task %v was stored, or another has its key",
				store.ErrUnavailable, task)
		}
	}
	return err
}
