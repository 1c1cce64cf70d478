package mysql

import (
	"context"
	"database/sql"

	"github.com/tuskqueue/tusk/store"
)

// Records implements store.Recorder.
func (s *Store) Records(ctx context.Context, kind string) (records []store.Record, err error) {
	err = s.view(ctx, func(w *work) error {
		records = nil
		return w.ask(func(rows *sql.Rows) error {
			r := store.Record{Kind: kind}
			var name []byte
			var at int64
			err := rows.Scan(&name, &r.Version, &r.Body, &at)
			r.Name, r.UpdatedAt = string(name), instant(at)
			records = append(records, r)
			return err
		}, q("record.all"), []byte(kind))
	})
	return records, wrap("records", err)
}

// PutRecord implements store.Recorder.
func (s *Store) PutRecord(ctx context.Context, p store.PutRecord) (version int64, results []store.Enqueued, err error) {
	err = s.write(ctx, func(w *work) error {
		version, results, err = w.putRecord(&p)
		return err
	})
	if err != nil {
		return 0, nil, wrap("put record", err)
	}
	return version, results, nil
}

func (w *work) putRecord(p *store.PutRecord) (version int64, results []store.Enqueued, err error) {
	if p.Term != 0 {
		if err := w.leads(p.Term); err != nil {
			return 0, nil, err
		}
	}
	r := &p.Record
	kind, name := []byte(r.Kind), []byte(r.Name)
	stored := int64(0)
	if err := w.ask(func(rows *sql.Rows) error { return rows.Scan(&stored) }, q("record.lock"), kind, name); err != nil {
		return 0, nil, err
	}
	if stored != r.Version {
		return 0, nil, store.ErrConflict
	}
	if results, err = w.enqueue(p.Tasks); err != nil {
		return 0, nil, err
	}
	if r.Body == nil {
		w.do(q("record.delete"), kind, name)
		return 0, results, nil
	}
	w.do(q("version.raise"))
	if err := w.ask(func(rows *sql.Rows) error { return rows.Scan(&version) }, q("version.read")); err != nil {
		return 0, nil, err
	}
	if stored == 0 {
		w.do(q("record.insert"), kind, name, version, r.Body)
	} else {
		w.do(q("record.update"), version, r.Body, kind, name)
	}
	return version, results, nil
}
