package mysql

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// deltas reads what has not been added to the sums yet.
func (w *work) deltas(into *delta) error {
	return w.ask(func(rows *sql.Rows) error {
		var at int64
		var body []byte
		if err := rows.Scan(&at, &body); err != nil {
			return err
		}
		return into.read(at, body)
	}, q("delta.all"))
}

// readStat reads the columns at, queue, kind, completed, failed, discarded, cancelled, waited and ran.
func readStat(rows *sql.Rows) (*store.Stat, error) {
	s := &store.Stat{}
	var at int64
	var queue, kind, waited, ran []byte
	if err := rows.Scan(&at, &queue, &kind, &s.Completed, &s.Failed, &s.Discarded, &s.Cancelled, &waited,
		&ran); err != nil {
		return nil, err
	}
	s.At, s.Queue, s.Kind = instant(at), string(queue), string(kind)
	return s, errors.Join(s.Waited.Decode(waited), s.Ran.Decode(ran))
}

// Stats implements store.Reader. It adds up minutes.
func (s *Store) Stats(ctx context.Context, f store.StatsFilter) (stats []store.Stat, err error) {
	from, until := max(f.From.Truncate(time.Minute).UnixMicro(), 0), int64(math.MaxInt64)
	if !f.Until.IsZero() {
		until = f.Until.UnixMicro()
	}
	err = s.view(ctx, func(w *work) error {
		sums := store.NewSums(f)
		err := w.ask(func(rows *sql.Rows) error {
			one, err := readStat(rows)
			if err == nil {
				sums.Add(one)
			}
			return err
		}, q("stat.range"), from, until)
		if err != nil {
			return err
		}
		var late delta
		err = w.deltas(&late)
		for _, one := range late.stats {
			sums.Add(one)
		}
		stats = sums.Stats()
		return err
	})
	if err != nil {
		return nil, wrap("stats", err)
	}
	return stats, nil
}

// readGroup reads the columns id, queue, kind, fingerprint, count, waiting, dead, first, last, sample and sample_task.
func readGroup(rows *sql.Rows) (g group, f *failures, err error) {
	f = &failures{}
	var id, queue, kind, fingerprint, task []byte
	err = rows.Scan(&id, &queue, &kind, &fingerprint, &f.Count, &f.Waiting, &f.Dead, &f.First, &f.Last, &f.Sample, &task)
	copy(g[:], id)
	copy(f.SampleTask[:], task)
	f.Queue, f.Kind, f.Fingerprint = string(queue), string(kind), string(fingerprint)
	return g, f, err
}

// Errors implements store.Reader. It reads the latest groups, and those that have changed since the sums were last
// updated.
func (s *Store) Errors(ctx context.Context, f store.ErrorFilter) ([]store.ErrorGroup, error) {
	since := int64(0)
	if !f.Since.IsZero() {
		since = f.Since.UnixMicro()
	}
	var all map[group]*failures
	err := s.view(ctx, func(w *work) error {
		all = map[group]*failures{}
		var late delta
		if err := w.deltas(&late); err != nil {
			return err
		}
		collect := func(rows *sql.Rows) error {
			g, one, err := readGroup(rows)
			all[g] = one
			return err
		}
		queue, kind, limit := []byte(f.Queue), []byte(f.Kind), f.Most()
		if err := w.ask(collect, q("error.latest"), since, queue, queue, kind, kind, limit+len(late.groups)); err != nil {
			return err
		}
		for g, one := range late.groups {
			if all[g] == nil {
				if err := w.ask(collect, list("error.read", "?", 1), g[:]); err != nil {
					return err
				}
			}
			if all[g] == nil {
				all[g] = &failures{}
			}
			all[g].add(one)
		}
		return nil
	})
	if err != nil {
		return nil, wrap("errors", err)
	}
	var groups []store.ErrorGroup
	for _, g := range all {
		if g.Count == 0 {
			continue
		}
		groups = append(groups, store.ErrorGroup{Fingerprint: g.Fingerprint, Queue: g.Queue, Kind: g.Kind, Count: g.Count,
			Waiting: g.Waiting, Dead: g.Dead, First: instant(g.First), Last: instant(g.Last), Sample: string(g.Sample),
			SampleTask: g.SampleTask})
	}
	return f.Page(groups), nil
}
