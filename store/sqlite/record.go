package sqlite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tuskqueue/tusk/store"
)

// Records implements store.Recorder.
func (s *Store) Records(ctx context.Context, f store.RecordFilter) ([]store.Record, error) {
	most := cmp.Or(f.Limit, -1) // -1: no limit
	statement, args := "record.list", []any{f.Kind, f.After, most}
	if f.Backward {
		statement, args = "record.backward", []any{f.Kind, f.Until(), most}
	} else if len(f.Names) > 0 {
		names := slices.Compact(slices.Sorted(slices.Values(f.Names)))
		statement, args = "record.named", []any{f.Kind, inJSON(names), f.After, most}
	}
	var records []store.Record
	err := s.read(ctx, func(ctx context.Context, c session) error {
		return c.each(ctx, statement, func(r row) error {
			records = append(records, store.Record{Kind: f.Kind, Name: r.text(0), Version: r.int(1), Body: r.blob(2),
				UpdatedAt: r.time(3)})
			return nil
		}, args...)
	})
	return answer(records, "records", err)
}

// PutRecord implements store.Recorder.
func (s *Store) PutRecord(ctx context.Context, p store.PutRecord) (version int64, results []store.Enqueued, err error) {
	err = s.write(ctx, true, func(w *work) error {
		if p.Term != 0 {
			if err := leads(w.ctx, w.session, p.Term, w.now); err != nil {
				return err
			}
		}
		if version, err = w.putRecord(p.Record); err != nil {
			return err
		}
		results, err = w.enqueue(p.Tasks)
		return err
	})
	if err != nil {
		return 0, nil, fmt.Errorf("put record: %w", err)
	}
	return version, results, nil
}

// UpdateRecords implements store.Recorder.
func (s *Store) UpdateRecords(
	ctx context.Context, term int64, puts []store.PutRecord,
) (updated []store.Updated, err error) {
	err = s.write(ctx, true, func(w *work) error {
		if term != 0 {
			if err := leads(w.ctx, w.session, term, w.now); err != nil {
				return err
			}
		}
		updated = make([]store.Updated, len(puts))
		for i := range puts {
			updated[i].Version, err = w.putRecord(puts[i].Record)
			if err != nil && !errors.Is(err, store.ErrConflict) {
				return err
			}
		}
		return store.EnqueueUpdated(puts, updated, w.enqueue)
	})
	return answer(updated, "update records", err)
}

// putRecord writes or deletes a record and returns its new version. Versions are never used twice, so a record that was
// deleted and created again is not mistaken for the old one.
func (w *work) putRecord(p store.Record) (int64, error) {
	r, err := w.one("record.version", p.Kind, p.Name)
	if err != nil {
		return 0, err
	}
	var version int64
	if r != nil {
		version = r.int(0)
	}
	if version != p.Version {
		return 0, store.ErrConflict
	}
	if p.Body == nil {
		if version == 0 {
			return 0, nil
		}
		_, err := w.run("record.drop", p.Kind, p.Name)
		return 0, err
	}
	w.wrote = true
	if r, err = w.one("record.next"); err != nil {
		return 0, err
	}
	version = r.int(0)
	_, err = w.run("record.write", p.Kind, p.Name, version, p.Body, w.now)
	return version, err
}
