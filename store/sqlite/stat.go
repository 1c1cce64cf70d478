package sqlite

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// minute is a key of tusk_stat: when it begins, and the kind.
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
			add(sum, &was)
		}
		if _, err := w.run("stat.write", at.at, at.kind, sum.Completed, sum.Failed, sum.Discarded, sum.Cancelled,
			encodeDurations(&sum.Waited), encodeDurations(&sum.Ran)); err != nil {
			return err
		}
	}
	return nil
}

// readStat reads completed, failed, discarded, cancelled, waited, ran.
func readStat(r row) (s store.Stat, err error) {
	s.Completed, s.Failed, s.Discarded, s.Cancelled = r.int(0), r.int(1), r.int(2), r.int(3)
	return s, errors.Join(decodeDurations(r.blob(4), &s.Waited), decodeDurations(r.blob(5), &s.Ran))
}

func add(sum, s *store.Stat) {
	sum.Completed += s.Completed
	sum.Failed += s.Failed
	sum.Discarded += s.Discarded
	sum.Cancelled += s.Cancelled
	sum.Waited.Merge(&s.Waited)
	sum.Ran.Merge(&s.Ran)
}

// encodeDurations writes count, sum, largest, and of the histogram the buckets
// that are not empty, each as its distance from the one before and its number.
func encodeDurations(d *store.Durations) []byte {
	b := make([]byte, 0, 64)
	b = binary.AppendVarint(b, d.Count)
	b = binary.AppendVarint(b, int64(d.Sum))
	b = binary.AppendVarint(b, int64(d.Max))
	last := 0
	for i, n := range d.Buckets {
		if n != 0 {
			b = binary.AppendVarint(binary.AppendVarint(b, int64(i-last)), n)
			last = i
		}
	}
	return b
}

var errHistogram = errors.New("a histogram in tusk_stat is damaged")

func decodeDurations(b []byte, d *store.Durations) error {
	damaged := false
	next := func() int64 {
		v, n := binary.Varint(b)
		if n <= 0 {
			damaged, b = true, nil
			return 0
		}
		b = b[n:]
		return v
	}
	d.Count, d.Sum, d.Max = next(), time.Duration(next()), time.Duration(next())
	for i := int64(0); len(b) > 0; {
		if i += next(); i < 0 || i >= store.DurationBuckets {
			return errHistogram
		}
		d.Buckets[i] = next()
	}
	if damaged {
		return errHistogram
	}
	return nil
}

// Stats implements store.Reader: it adds minutes up.
func (s *Store) Stats(ctx context.Context, f store.StatsFilter) ([]store.Stat, error) {
	bucket := max(f.Bucket, time.Minute)
	from, until := f.From.Truncate(time.Minute), int64(1)<<62
	if !f.Until.IsZero() {
		until = micros(f.Until)
	}
	sums := map[minute]*store.Stat{}
	var stats []*store.Stat
	err := s.read(ctx, func(ctx context.Context, c session) error {
		names := readNames(ctx, c, s)
		return c.each(ctx, "stat.range", func(r row) error {
			of, err := names(r.int(7))
			if err != nil || f.Queue != "" && f.Queue != of.queue || f.Kind != "" && f.Kind != of.kind {
				return err
			}
			one, err := readStat(r)
			if err != nil {
				return err
			}
			begins := r.time(6).Truncate(bucket)
			at := minute{micros(begins), r.int(7)}
			if sums[at] == nil {
				sums[at] = &store.Stat{At: begins, Queue: of.queue, Kind: of.kind}
				stats = append(stats, sums[at])
			}
			add(sums[at], &one)
			return nil
		}, micros(from), until)
	})
	if err != nil {
		return nil, fmt.Errorf("stats: %w", err)
	}
	slices.SortFunc(stats, func(a, b *store.Stat) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Kind, b.Kind))
	})
	all := make([]store.Stat, len(stats))
	for i, stat := range stats {
		all[i] = *stat
	}
	return all, nil
}
