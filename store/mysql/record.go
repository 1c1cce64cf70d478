package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"math"
	"slices"
	"strings"

	"github.com/tuskqueue/tusk/store"
)

// Records implements store.Recorder.
func (s *Store) Records(ctx context.Context, f store.RecordFilter) (records []store.Record, err error) {
	if err := s.ready(ctx); err != nil {
		return nil, wrap("records", err)
	}
	text, args := q("record.all"), []any{[]byte(f.Kind), []byte(f.After)}
	if f.Backward {
		text, args[1] = q("record.backward"), []byte(f.Until())
	} else if len(f.Names) > 0 {
		text = list("record.named", "?", len(f.Names))
		for _, name := range f.Names {
			args = append(args, []byte(name))
		}
	}
	args = append(args, cmp.Or(f.Limit, math.MaxInt64))
	err = s.query(ctx, func(rows *sql.Rows) error {
		r := store.Record{Kind: f.Kind}
		var name []byte
		var at int64
		err := rows.Scan(&name, &r.Version, &r.Body, &at)
		r.Name, r.UpdatedAt = string(name), instant(at)
		records = append(records, r)
		return err
	}, text, args...)
	return records, wrap("records", err)
}

// Look implements store.Looker.
func (s *Store) Look(ctx context.Context, queues []string, kinds ...string) (seen store.Sight, err error) {
	if err := s.ready(ctx); err != nil {
		return store.Sight{}, wrap("look", err)
	}
	parts := []string{list("look.records", "?", len(kinds)), q("look.leader")}
	var args []any
	for _, kind := range kinds {
		args = append(args, []byte(kind))
	}
	for _, queue := range queues {
		parts = append(parts, q("look.queue"))
		args = append(args, []byte(queue), []byte(queue))
	}
	const aRecord, aLeader = 0, 1
	err = s.query(ctx, func(rows *sql.Rows) error {
		var what int
		var of, name, body []byte
		var number, at int64
		err := rows.Scan(&what, &of, &name, &number, &body, &at)
		switch {
		case what == aRecord:
			seen.Records = append(seen.Records,
				store.Record{Kind: string(of), Name: string(name), Version: number, Body: body, UpdatedAt: instant(at)})
		case what == aLeader:
			if seen.Now = instant(at); number > 0 {
				copy(seen.Leader[:], of)
			}
		default:
			seen.Queues = append(seen.Queues, string(name))
		}
		return err
	}, strings.Join(parts, " union all "), args...)
	slices.SortFunc(seen.Records, func(a, b store.Record) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return seen, wrap("look", err)
}

// PutRecord implements store.Recorder.
func (s *Store) PutRecord(ctx context.Context, p store.PutRecord) (version int64, results []store.Enqueued, err error) {
	err = s.record(ctx, p.Term, func(w *work) error {
		version, results, err = w.putRecord(&p)
		return err
	})
	if err != nil {
		return 0, nil, wrap("put record", err)
	}
	return version, results, nil
}

// UpdateRecords implements store.Recorder.
func (s *Store) UpdateRecords(
	ctx context.Context, term int64, puts []store.PutRecord,
) (updated []store.Updated, err error) {
	if len(puts) == 0 {
		return nil, nil
	}
	err = s.record(ctx, term, func(w *work) error {
		updated, err = w.updateRecords(term, puts)
		return err
	})
	if err != nil {
		return nil, wrap("update records", err)
	}
	return updated, nil
}

// record runs a transaction that writes records. The leader's must not wait for a key that a user's transaction holds,
// or for a record whose writer waits for one: it has locked the term, which could not be renewed in the meantime.
func (s *Store) record(ctx context.Context, term int64, fn func(w *work) error) error {
	if term != 0 {
		return s.hurry(ctx, fewTries, fn)
	}
	return s.write(ctx, fn)
}

func (w *work) updateRecords(term int64, puts []store.PutRecord) ([]store.Updated, error) {
	if term != 0 {
		if err := w.leads(term); err != nil {
			return nil, err
		}
	}
	kind := []byte(puts[0].Record.Kind)
	args := []any{kind}
	for i := range puts {
		args = append(args, []byte(puts[i].Record.Name))
	}
	stored := map[string]int64{}
	if err := w.ask(func(rows *sql.Rows) error {
		var name []byte
		var version int64
		err := rows.Scan(&name, &version)
		stored[string(name)] = version
		return err
	}, w.locking(list("record.locks", "?", len(puts))), args...); err != nil {
		return nil, err
	}
	updated := make([]store.Updated, len(puts))
	rewritten := 0
	for i := range puts {
		r := &puts[i].Record
		if version, exists := stored[r.Name]; exists && version == r.Version {
			updated[i].Version = version // until the new one is known
			rewritten++
		}
	}
	if rewritten == 0 {
		return updated, nil
	}
	if err := store.EnqueueUpdated(puts, updated, w.enqueue); err != nil {
		return nil, err
	}
	// Everybody who writes a record locks the version, so it comes last.
	var last int64
	w.do(q("version.raiseby"), rewritten)
	if err := w.ask(func(rows *sql.Rows) error { return rows.Scan(&last) }, q("version.read")); err != nil {
		return nil, err
	}
	args = args[:0]
	for i := range puts {
		if r := &puts[i].Record; updated[i].Version != 0 {
			updated[i].Version = last
			last--
			args = append(args, kind, []byte(r.Name), updated[i].Version, r.Body)
		}
	}
	w.do(list("record.rewrite", "(?, ?, ?, ?, "+clock+")", rewritten), args...)
	return updated, nil
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
	err = w.ask(func(rows *sql.Rows) error { return rows.Scan(&stored) }, w.locking(q("record.lock")), kind, name)
	if err != nil {
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
