package memory

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// List implements store.Reader.
func (s *Store) List(ctx context.Context, f store.Filter) ([]store.Task, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	limit := f.Limit
	if limit <= 0 {
		limit = 100
	}
	limit = min(limit, store.MaxPage)
	var page []store.Task
	for _, t := range slices.Backward(s.candidates(&f)) {
		if len(page) == limit {
			break
		}
		if f.Matches(&t.Task, t.fingerprint()) {
			page = append(page, t.answer(f.Detail))
			if f.NoArgs {
				page[len(page)-1].Args = nil
			}
			if f.Detail {
				page[len(page)-1].Detail.Needs = s.needStates(t)
			}
		}
	}
	return page, nil
}

// candidates returns the tasks that a filter may select, smallest id first.
func (s *Store) candidates(f *store.Filter) []*task {
	found := s.order
	if len(f.IDs) > 0 {
		found = nil
		for _, id := range f.IDs {
			at, known := slices.BinarySearchFunc(found, id, byID)
			if t := s.tasks[id]; t != nil && !known {
				found = slices.Insert(found, at, t)
			}
		}
	}
	if !f.Before.IsZero() {
		at, _ := slices.BinarySearchFunc(found, f.Before, byID)
		found = found[:at]
	}
	return found
}

// fingerprint returns the fingerprint of the latest failed attempt.
func (t *task) fingerprint() string {
	if t.group == nil {
		return ""
	}
	return t.group.Fingerprint
}

// answer copies a task, so that callers never share memory with the database.
func (t *task) answer(detail bool) store.Task {
	c := t.Task
	c.Args = bytes.Clone(c.Args)
	c.Tags = slices.Clone(c.Tags)
	c.Settings = bytes.Clone(c.Settings)
	if !detail {
		return c
	}
	d := t.detail
	d.CancelRequested = t.Stopping
	d.Attempts = slices.Clone(d.Attempts)
	d.Output = bytes.Clone(d.Output)
	d.Logs = rules.Lines(d.Logs)
	if d.Progress != nil {
		progress := *d.Progress
		d.Progress = &progress
	}
	c.Detail = &d
	return c
}

// Count implements store.Reader. The oldest available task of a queue is at the head of one of its lanes.
func (s *Store) Count(ctx context.Context) ([]store.Count, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("count: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := clock()
	var counts []store.Count
	for of, n := range s.counts {
		c := store.Count{Queue: of.queue, State: of.state, Tasks: n}
		if of.state == store.Available {
			c.Oldest = s.queues[of.queue].oldest(now)
		}
		counts = append(counts, c)
	}
	slices.SortFunc(counts, func(a, b store.Count) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.State, b.State))
	})
	return counts, nil
}

func (q *queue) oldest(now time.Time) (age time.Duration) {
	for _, priority := range q.priorities {
		if t := q.first(priority); t != nil {
			age = max(age, now.Sub(t.RunAt))
		}
	}
	return age
}

// Stats implements store.Reader.
func (s *Store) Stats(ctx context.Context, f store.StatsFilter) ([]store.Stat, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("stats: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sums := store.NewSums(f)
	for _, stat := range s.stats {
		sums.Add(stat)
	}
	return sums.Stats(), nil
}

// Errors implements store.Reader.
func (s *Store) Errors(ctx context.Context, f store.ErrorFilter) ([]store.ErrorGroup, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("errors: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var groups []store.ErrorGroup
	for _, g := range s.failures {
		groups = append(groups, *g)
	}
	return f.Page(groups), nil
}

// Workers implements store.Reader.
func (s *Store) Workers(ctx context.Context) ([]store.Worker, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("workers: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var living []store.Worker
	for _, w := range s.workers {
		if w.dead {
			continue
		}
		one := w.Worker
		one.Queues = slices.Clone(one.Queues)
		one.Running = len(w.holds)
		living = append(living, one)
	}
	slices.SortFunc(living, func(a, b store.Worker) int {
		return cmp.Or(a.StartedAt.Compare(b.StartedAt), slices.Compare(a.ID[:], b.ID[:]))
	})
	return living, nil
}
