package tusk

import (
	"context"
	"fmt"
	"time"

	"github.com/tuskqueue/tusk/internal/tick"
	"github.com/tuskqueue/tusk/store"
)

// Ticks returns the first n ticks of the schedule after an instant, in its time zone. A period ("@every 15m")
// counts from its start, or else from 1970, not from the last tick.
func (s *ScheduleInfo) Ticks(after time.Time, n int) ([]time.Time, error) {
	spec, err := s.Parse()
	if err != nil {
		return nil, fmt.Errorf("schedule %s: %w", s.Name, err)
	}
	var ticks []time.Time
	for t := spec.Next(after); !t.IsZero() && len(ticks) < n; t = spec.Next(t) {
		ticks = append(ticks, t)
	}
	return ticks, nil
}

// Between returns the ticks of the schedule in the range [from, until): those that BackfillSchedule would enqueue,
// whether they were run at the time or not.
//
// The error is an *InvalidError if there are more than MaxBatch ticks or if from is after until.
func (s *ScheduleInfo) Between(from, until time.Time) ([]time.Time, error) {
	if from.After(until) {
		return nil, invalid("from", "out_of_range", "is %s, which is after until, %s",
			from.UTC().Format(time.RFC3339), until.UTC().Format(time.RFC3339))
	}
	ticks, err := s.Ticks(from.Add(-time.Nanosecond), MaxBatch+1)
	if err != nil {
		return nil, err
	}
	for i, t := range ticks {
		if !t.Before(until) {
			return ticks[:i], nil
		}
	}
	if len(ticks) > MaxBatch {
		return nil, invalid("range", "too_many", "has more than %d ticks of schedule %s: take a shorter one at a time",
			MaxBatch, s.Name)
	}
	return ticks, nil
}

// Now returns the database's time, which decides which tasks and ticks are due. This process's clock may differ.
func (c *Client) Now(ctx context.Context) (time.Time, error) {
	// Giving up a term that this process does not have changes nothing and returns the time.
	l, err := c.store.Lead(ctx, store.Candidate{ID: NewID()})
	return l.Now, err
}

// BackfillSchedule enqueues a schedule's task for each tick in the range [from, until), which must not lie in the
// database's future, all or none. Each task gets its own tick and a key of its own: if a range is backfilled twice,
// ticks whose task is unfinished are skipped. The stored plan, the policies and a pause have no effect. Ticks that
// have already been fired are enqueued again.
//
// Errors: ErrNotFound; an *InvalidError if the range lies in the future, ends before it begins or has more than
// MaxBatch ticks.
func (c *Client) BackfillSchedule(
	ctx context.Context, name string, from, until time.Time, may ...func(ScheduleInfo) error,
) ([]Enqueued, error) {
	s, err := c.Schedule(ctx, name)
	if err != nil {
		return nil, err
	}
	if err := s.allowed(may); err != nil {
		return nil, fmt.Errorf("schedule %s: %w", name, err)
	}
	now, err := c.Now(ctx)
	if err != nil {
		return nil, fmt.Errorf("schedule %s: %w", name, err)
	}
	if until.After(now) {
		return nil, invalid("until", "out_of_range", "is %v, which is to come: the schedule fires those ticks itself",
			until.Format(time.RFC3339))
	}
	ticks, err := s.Between(from, until)
	if err != nil || len(ticks) == 0 {
		return nil, err
	}
	plain := s.Schedule
	plain.Overlap, plain.Jitter = tick.OverlapAllow, 0
	tasks := make([]store.NewTask, len(ticks))
	for i, at := range ticks {
		if tasks[i], err = plain.Task(name, at, NewID()); err != nil {
			return nil, err
		}
		tasks[i].Key = tick.Key(name) + ":" + at.UTC().Format(time.RFC3339)
	}
	if err := c.present(ctx, tasks); err != nil {
		return nil, fmt.Errorf("schedule %s: %w", name, err)
	}
	results, err := c.store.Enqueue(ctx, tasks)
	if err != nil {
		return nil, fmt.Errorf("schedule %s: %w", name, err)
	}
	return results, nil
}
