package sqlite

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// minute is a key of tusk_stat: the start of the minute, and the kind.
type minute struct{ at, kind int64 }

// flushStats adds what this call has counted to the rows of tusk_stat.
func (w *work) flushStats() error {
	for at, sum := range w.stats {
		r, err := w.one("stat.find", at.at, at.kind)
		if err != nil {
			return err
		}
		if r != nil {
			was, err := readStat(r)
			if err != nil {
				return err
			}
			sum.Add(&was)
		}
		if _, err := w.run("stat.write", at.at, at.kind, sum.Completed, sum.Failed, sum.Discarded, sum.Cancelled,
			sum.Waited.Encode(), sum.Ran.Encode()); err != nil {
			return err
		}
	}
	return nil
}

// readStat reads completed, failed, discarded, cancelled, waited, ran.
func readStat(r row) (s store.Stat, err error) {
	s.Completed, s.Failed, s.Discarded, s.Cancelled = r.int(0), r.int(1), r.int(2), r.int(3)
	return s, errors.Join(s.Waited.Decode(r.blob(4)), s.Ran.Decode(r.blob(5)))
}

// Stats implements store.Reader. It adds up minutes.
func (s *Store) Stats(ctx context.Context, f store.StatsFilter) ([]store.Stat, error) {
	from, until := f.From.Truncate(time.Minute), int64(math.MaxInt64)
	if !f.Until.IsZero() {
		until = micros(f.Until)
	}
	sums := store.NewSums(f)
	err := s.readLong(ctx, func(ctx context.Context, c session) error {
		names := readNames(ctx, c, s)
		return c.each(ctx, "stat.range", func(r row) error {
			of, err := names(r.int(7))
			if err != nil {
				return err
			}
			one, err := readStat(r)
			one.At, one.Queue, one.Kind = r.time(6), of.queue, of.kind
			if err == nil {
				sums.Add(&one)
			}
			return err
		}, micros(from), until)
	})
	if err != nil {
		return nil, fmt.Errorf("stats: %w", err)
	}
	return sums.Stats(), nil
}
