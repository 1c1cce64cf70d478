package ledgers

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// sums adds up rows with the same key, in the order of their first occurrence.
func sums[K comparable, V any](parts [][]V, key func(*V) K, add func(sum, one *V)) []V {
	var all []V
	at := map[K]int{}
	for _, part := range parts {
		for i := range part {
			k := key(&part[i])
			if j, known := at[k]; known {
				add(&all[j], &part[i])
				continue
			}
			at[k] = len(all)
			all = append(all, part[i])
		}
	}
	return all
}

// Count implements store.Reader.
func (s *Store) Count(ctx context.Context) ([]store.Count, error) {
	parts, err := fromAll(ctx, s, ask, func(ctx context.Context, e *postgres.Store) ([]store.Count, error) {
		return e.Count(ctx)
	})
	if err != nil {
		return nil, err
	}
	type key struct {
		queue string
		state store.State
	}
	all := sums(parts, func(c *store.Count) key { return key{c.Queue, c.State} }, func(sum, c *store.Count) {
		sum.Tasks, sum.Oldest = sum.Tasks+c.Tasks, max(sum.Oldest, c.Oldest)
	})
	slices.SortFunc(all, func(a, b store.Count) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.State, b.State))
	})
	return all, nil
}

// Stats implements store.Reader.
func (s *Store) Stats(ctx context.Context, f store.StatsFilter) ([]store.Stat, error) {
	parts, err := fromAll(ctx, s, query, func(ctx context.Context, e *postgres.Store) ([]store.Stat, error) {
		return e.Stats(ctx, f)
	})
	if err != nil {
		return nil, err
	}
	type key struct {
		at          int64
		queue, kind string
	}
	all := sums(parts, func(t *store.Stat) key { return key{t.At.UnixNano(), t.Queue, t.Kind} }, (*store.Stat).Add)
	slices.SortFunc(all, func(a, b store.Stat) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Kind, b.Kind))
	})
	return all, nil
}

// Errors implements store.Reader. It reads the latest thousand groups of each ledger. The errors of a group in a ledger
// where it is not among these are not counted.
func (s *Store) Errors(ctx context.Context, f store.ErrorFilter) ([]store.ErrorGroup, error) {
	limit := f.Limit
	if limit <= 0 {
		limit = pageOf(0)
	}
	f.Limit = max(limit, store.MaxPage)
	parts, err := fromAll(ctx, s, query, func(ctx context.Context, e *postgres.Store) ([]store.ErrorGroup, error) {
		return e.Errors(ctx, f)
	})
	if err != nil {
		return nil, err
	}
	type key struct{ print, queue, kind string }
	all := sums(parts, func(g *store.ErrorGroup) key { return key{g.Fingerprint, g.Queue, g.Kind} }, addErrors)
	slices.SortStableFunc(all, func(a, b store.ErrorGroup) int { return b.Last.Compare(a.Last) })
	return all[:min(len(all), limit)], nil
}

func addErrors(sum, g *store.ErrorGroup) {
	sum.Count, sum.Waiting, sum.Dead = sum.Count+g.Count, sum.Waiting+g.Waiting, sum.Dead+g.Dead
	if g.First.Before(sum.First) {
		sum.First = g.First
	}
	if g.Last.After(sum.Last) {
		sum.Last, sum.Sample, sum.SampleTask = g.Last, g.Sample, g.SampleTask
	}
}

// Workers implements store.Reader. A worker is alive if it is alive in at least one ledger.
func (s *Store) Workers(ctx context.Context) ([]store.Worker, error) {
	parts, err := fromAll(ctx, s, ask, func(ctx context.Context, e *postgres.Store) ([]store.Worker, error) {
		return e.Workers(ctx)
	})
	if err != nil {
		return nil, err
	}
	all := sums(parts, func(w *store.Worker) store.ID { return w.ID }, func(sum, w *store.Worker) {
		sum.Running += w.Running
		sum.StartedAt = earlier(sum.StartedAt, w.StartedAt)
		if w.BeatAt.After(sum.BeatAt) {
			sum.BeatAt, sum.ExpiresAt = w.BeatAt, w.ExpiresAt
		}
	})
	slices.SortStableFunc(all, func(a, b store.Worker) int { return a.StartedAt.Compare(b.StartedAt) })
	return all, nil
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
