package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Count implements store.Reader.
func (s *Store) Count(ctx context.Context) ([]store.Count, error) {
	now := time.Time{}
	var counts []store.Count
	err := s.read(ctx, s.pinned(s.do("count").into(func(raw [][]byte) error {
		c := store.Count{Queue: string(raw[0]), State: store.State(int32Of(raw[1])), Tasks: int64Of(raw[2])}
		now = timeOf(raw[4])
		if raw[3] != nil {
			c.Oldest = max(now.Sub(timeOf(raw[3])), 0)
		}
		if c.Tasks > 0 {
			counts = append(counts, c)
		}
		return nil
	})))
	if err != nil {
		return nil, fmt.Errorf("count: %w", err)
	}
	slices.SortFunc(counts, func(a, b store.Count) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.State, b.State))
	})
	return counts, nil
}

// Stats implements store.Reader. A row of the database is the sum of a flush or of a span of time. Stats divides
// them into buckets.
func (s *Store) Stats(ctx context.Context, f store.StatsFilter) ([]store.Stat, error) {
	type slice struct {
		at          int64
		queue, kind string
	}
	bucket := max(f.Bucket, time.Minute)
	from := f.From.Truncate(time.Minute)
	sums := map[slice]*store.Stat{}
	begins, ends := lower(from), upper(f.Until)
	minutes, since, end := foldedIn(bucket, begins, ends)
	err := s.queryPinned(ctx, s.sql["stats"], func(raw [][]byte) error {
		var list []statJSON
		if err := json.Unmarshal(raw[1], &list); err != nil {
			return nil // maintenance reports it
		}
		for _, one := range list {
			minute := timeOf(raw[0]).Add(-time.Duration(one.Ago) * time.Second).Truncate(time.Minute)
			if minute.Before(from) || !f.Until.IsZero() && !minute.Before(f.Until) ||
				f.Queue != "" && f.Queue != one.Queue || f.Kind != "" && f.Kind != one.Kind {
				continue
			}
			at := minute.Truncate(bucket)
			sum := sums[slice{at.Unix(), one.Queue, one.Kind}]
			if sum == nil {
				sum = &store.Stat{At: at, Queue: one.Queue, Kind: one.Kind}
				sums[slice{at.Unix(), one.Queue, one.Kind}] = sum
			}
			one.addTo(sum)
		}
		return nil
	}, begins, ends, since, end, minutes, ends.Add(late))
	if err != nil {
		return nil, fmt.Errorf("stats: %w", err)
	}
	var list []store.Stat
	for _, sum := range sums {
		list = append(list, *sum)
	}
	slices.SortFunc(list, func(a, b store.Stat) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Kind, b.Kind))
	})
	return list, nil
}

func (one *statJSON) addTo(sum *store.Stat) {
	sum.Completed += one.Completed
	sum.Failed += one.Failed
	sum.Discarded += one.Discarded
	sum.Cancelled += one.Cancelled
	one.Waited.addTo(&sum.Waited)
	one.Ran.addTo(&sum.Ran)
}

// late is how long after the end of an attempt its flush may be written.
const late = 24 * time.Hour

// lower and upper limit times to a range that the database can store.
func lower(from time.Time) time.Time {
	if from.Year() < 2000 {
		return time.Unix(epoch, 0).UTC()
	}
	return from
}

func upper(until time.Time) time.Time {
	if until.IsZero() || until.Year() > 9000 {
		return time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	return until
}

// Errors implements store.Reader.
func (s *Store) Errors(ctx context.Context, f store.ErrorFilter) ([]store.ErrorGroup, error) {
	limit := f.Limit
	if limit <= 0 {
		limit = 100
	}
	var groups []store.ErrorGroup
	err := s.queryPinned(ctx, s.sql["errors"], func(raw [][]byte) error {
		groups = append(groups, store.ErrorGroup{
			Fingerprint: string(raw[0]), Kind: string(raw[2]), Count: int64Of(raw[3]), First: timeOf(raw[4]),
			Last:   timeOf(raw[5]),
			Sample: string(raw[6]), SampleTask: idOf(raw[7]), Queue: string(raw[8]), Waiting: int64Of(raw[9]),
			Dead: int64Of(raw[10]),
		})
		return nil
	}, f.Queue, hashOf(f.Queue), f.Kind, lower(f.Since), limit)
	if err != nil {
		return nil, fmt.Errorf("errors: %w", err)
	}
	return groups, nil
}

// Workers implements store.Reader.
func (s *Store) Workers(ctx context.Context) ([]store.Worker, error) {
	var workers []store.Worker
	err := s.queryPinned(ctx, s.sql["workers"], func(raw [][]byte) error {
		var w store.Worker
		if err := json.Unmarshal(jsonb(raw[1]), &w); err != nil {
			w = store.Worker{Host: "(cannot be read)"}
		}
		w.ID, w.StartedAt, w.BeatAt, w.ExpiresAt = idOf(raw[0]), timeOf(raw[2]), timeOf(raw[3]), timeOf(raw[4])
		w.Running = int(int64Of(raw[5]))
		workers = append(workers, w)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("workers: %w", err)
	}
	return workers, nil
}
