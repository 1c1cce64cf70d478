package memory

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Records implements store.Recorder.
func (s *Store) Records(ctx context.Context, f store.RecordFilter) ([]store.Record, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("records: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var records []store.Record
	names := slices.Sorted(maps.Keys(s.records[f.Kind]))
	if f.Backward {
		slices.Reverse(names)
	}
	for _, name := range names {
		if len(f.Names) > 0 && !slices.Contains(f.Names, name) || name <= f.After || f.Backward && name >= f.Until() {
			continue
		}
		if f.Limit > 0 && len(records) == f.Limit {
			break
		}
		r := s.records[f.Kind][name]
		r.Body = bytes.Clone(r.Body)
		records = append(records, r)
	}
	return records, nil
}

// PutRecord implements store.Recorder.
func (s *Store) PutRecord(ctx context.Context, p store.PutRecord) (int64, []store.Enqueued, error) {
	if err := ctx.Err(); err != nil {
		return 0, nil, fmt.Errorf("put record: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := clock()
	if p.Term != 0 {
		if err := s.leads(p.Term, now); err != nil {
			return 0, nil, fmt.Errorf("put record: %w", err)
		}
	}
	if s.records[p.Record.Kind][p.Record.Name].Version != p.Record.Version {
		return 0, nil, fmt.Errorf("put record: %w", store.ErrConflict)
	}
	return s.writeRecord(p.Record, now), s.enqueue(p.Tasks, now), nil
}

// UpdateRecords implements store.Recorder.
func (s *Store) UpdateRecords(ctx context.Context, term int64, puts []store.PutRecord) ([]store.Updated, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("update records: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := clock()
	if term != 0 {
		if err := s.leads(term, now); err != nil {
			return nil, fmt.Errorf("update records: %w", err)
		}
	}
	updated := make([]store.Updated, len(puts))
	for i, p := range puts {
		if s.records[p.Record.Kind][p.Record.Name].Version == p.Record.Version {
			updated[i].Version = s.writeRecord(p.Record, now)
		}
	}
	return updated, store.EnqueueUpdated(puts, updated, func(tasks []store.NewTask) ([]store.Enqueued, error) {
		return s.enqueue(tasks, now), nil
	})
}

// writeRecord stores or deletes a record and returns its new version. Versions are never reused, so a record that was
// deleted and created again is not mistaken for the old one.
func (s *Store) writeRecord(r store.Record, now time.Time) int64 {
	if r.Body == nil {
		delete(s.records[r.Kind], r.Name)
		return 0
	}
	if s.records[r.Kind] == nil {
		s.records[r.Kind] = map[string]store.Record{}
	}
	s.versions++
	r.Version, r.UpdatedAt, r.Body = s.versions, now, bytes.Clone(r.Body)
	s.records[r.Kind][r.Name] = r
	return r.Version
}
