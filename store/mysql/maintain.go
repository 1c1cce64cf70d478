package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

const (
	maxFolded = 2000      // maximum number of deltas that one transaction adds up
	maxListed = 100       // tasks in one row of tusk_finished
	daysEvery = time.Hour // how often days are created, and procedures dropped
)

// Maintain implements store.Maintainer. It creates days in advance, drops procedures that no program calls any
// longer, adds up deltas, and deletes leftover leases and stops. It takes each step even if another has failed.
func (s *Store) Maintain(ctx context.Context, term int64) error {
	if err := s.hourly(ctx); err != nil {
		return wrap("maintain", err)
	}
	var failed error
	for _, step := range []func(context.Context, int64) error{s.foldAll, s.sweepLeases, s.sweepStops} {
		failed = errors.Join(failed, wrap("maintain", step(ctx, term)))
		if ctx.Err() != nil || errors.Is(failed, store.ErrNotLeader) ||
			errors.Is(failed, store.ErrUnavailable) && !interrupted(failed) {
			break
		}
	}
	return failed
}

// hourly does the rare chores. If one fails, hourly does not retry it at once: days are created well in advance, and
// others may have had to wait.
func (s *Store) hourly(ctx context.Context) error {
	now := time.Now()
	if now.UnixNano() < s.daysDue.Load() {
		return nil
	}
	if err := s.ready(ctx); err != nil {
		return err
	}
	again := daysEvery
	for _, chore := range []struct {
		what string
		do   func(context.Context) error
	}{{"partitions for the next days could not be made", s.makeDays},
		{"procedures that no program calls could not be dropped", s.tidyPrograms}} {
		err := chore.do(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			again = lookEvery
			s.log.Warn("mysql: "+chore.what+", it will be tried again", "in", again, "error", err)
		}
	}
	s.daysDue.Store(now.Add(again).UnixNano())
	return nil
}

// sweepStops deletes requests to stop attempts that have ended meanwhile, because completing a task does not check
// for them. A task may be seen as it was before it ran; see idle.
func (s *Store) sweepStops(ctx context.Context, term int64) error {
	var over []ref
	err := s.view(ctx, func(w *work) error {
		over = nil
		if _, err := w.clock(); err != nil {
			return err
		}
		return w.ask(func(rows *sql.Rows) error {
			var r ref
			err := rows.Scan(&r.place, &r.n, &r.lap)
			over = append(over, r)
			return err
		}, q("stop.over"), placeAt(instant(w.now).Add(-sweepAfter)))
	})
	if err != nil || len(over) == 0 {
		return err
	}
	return s.write(ctx, func(w *work) error {
		for _, r := range over {
			w.do(q("stop.forget"), r.place, r.n, r.lap)
		}
		return w.leads(term)
	})
}

// foldAll adds up all deltas, in steps. It skips deltas that cannot be read, and returns an error for them.
func (s *Store) foldAll(ctx context.Context, term int64) (damaged error) {
	for range 50 {
		var n int
		var bad error
		err := s.write(ctx, func(w *work) (err error) {
			n, bad, err = w.fold(term)
			return err
		})
		if err == nil {
			damaged = errors.Join(damaged, bad)
		}
		if err != nil || n < maxFolded {
			return errors.Join(damaged, err)
		}
	}
	return damaged
}

// fold adds deltas to the sums, and skips those of open transactions. A fold whose connection broke may still be about
// to commit. The next fold waits for it, because it reads the sums that it overwrites.
func (w *work) fold(term int64) (n int, damaged, err error) {
	if err := w.leads(term); err != nil {
		return 0, nil, err
	}
	w.buf = append(w.buf, stmt{q("fold.lock"), nil, func(*sql.Rows) error { return nil }})
	var all delta
	var seqs []any
	err = w.ask(func(rows *sql.Rows) error {
		var seq, at int64
		var body []byte
		if err := rows.Scan(&seq, &at, &body); err != nil {
			return err
		}
		seqs = append(seqs, seq)
		if err := all.read(at, body); err != nil {
			damaged = errors.Join(damaged, fmt.Errorf("row %d of tusk_delta is damaged and left out: %w", seq, err))
		}
		return nil
	}, q("delta.take"), maxFolded)
	if err != nil || len(seqs) == 0 {
		return 0, nil, err
	}
	for part := range slices.Chunk(seqs, 500) {
		w.do(withKeys("delta.delete", ":seqs", "seq", len(part)), part...)
	}
	for of, n := range all.counts {
		w.do(q("count.add"), []byte(of.queue), of.state, n)
	}
	for of, e := range all.ended {
		slices.SortFunc(e.refs, byPlace)
		for part := range slices.Chunk(e.refs, maxListed) {
			w.do(q("finished.insert"), []byte(of.queue), of.state, e.last, w.next(), encodeSpans(spansOf(part)))
		}
	}
	if err := w.tellEnds(all.told); err != nil {
		return 0, nil, err
	}
	if err := w.foldStats(&all); err != nil {
		return 0, nil, err
	}
	return len(seqs), damaged, w.foldGroups(&all)
}

func (w *work) foldStats(all *delta) error {
	for at, sum := range all.stats {
		key := []any{at.at, []byte(at.queue), []byte(at.kind)}
		err := w.ask(func(rows *sql.Rows) error {
			was, err := readStat(rows)
			if err == nil {
				sum.Add(was)
			}
			return err
		}, q("stat.read"), key...)
		if err != nil {
			return err
		}
		w.do(q("stat.write"), append(key, sum.Completed, sum.Failed, sum.Discarded, sum.Cancelled,
			sum.Waited.Encode(), sum.Ran.Encode())...)
	}
	return nil
}

func (w *work) foldGroups(all *delta) error {
	for g, late := range all.groups {
		f := &failures{}
		err := w.ask(func(rows *sql.Rows) (err error) {
			_, f, err = readGroup(rows)
			return err
		}, list("error.read", "?", 1), g[:])
		if err != nil {
			return err
		}
		f.add(late)
		w.do(q("error.write"), g[:], []byte(f.Queue), []byte(f.Kind), []byte(f.Fingerprint), f.Count, f.Waiting, f.Dead,
			f.First, f.Last, append([]byte{}, f.Sample...), f.SampleTask[:])
	}
	return nil
}
