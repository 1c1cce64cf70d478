package tend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tuskqueue/tusk/internal/allot"
	"github.com/tuskqueue/tusk/internal/tick"
	"github.com/tuskqueue/tusk/store"
)

const (
	scheduleEvery = 500 * time.Millisecond
	// fireWithin bounds the write of one schedule: a user's open transaction may hold the
	// key of its task, and the others do not wait for that.
	fireWithin = 2 * time.Second
)

// schedule fires the ticks that have come. A schedule that cannot be read holds
// up no other.
func (l *Leader) schedule(ctx context.Context, term int64) (time.Duration, error) {
	records, err := l.store.Records(ctx, tick.RecordKind)
	if err != nil || len(records) == 0 {
		return scheduleEvery, err
	}
	limits, err := l.limits(ctx)
	if err != nil {
		return 0, err
	}
	var failed error
	for _, r := range records {
		err := l.fire(ctx, term, r, limits)
		switch {
		case errors.Is(err, store.ErrNotLeader):
			return 0, err
		case err != nil && !errors.Is(err, store.ErrConflict):
			failed = errors.Join(failed, fmt.Errorf("schedule %s: %w", r.Name, err))
		}
	}
	return scheduleEvery, failed
}

// fire enqueues the tasks of the ticks that are due and moves the cursor in the
// same write, so that no tick fires twice and none is lost.
func (l *Leader) fire(ctx context.Context, term int64, r store.Record, limits map[string]allot.Limits) error {
	var s tick.Schedule
	if err := json.Unmarshal(r.Body, &s); err != nil {
		return err
	}
	if s.Paused {
		return nil
	}
	planned, now := s.Next, l.now()
	if _, err := s.Rewind(now); err != nil {
		return err
	}
	due, err := s.Due(now)
	if err != nil || s.Next.Equal(planned) {
		return err
	}
	tasks := make([]store.NewTask, len(due))
	for i, at := range due {
		if tasks[i], err = s.Task(r.Name, at, l.o.NewID()); err != nil {
			return err
		}
		limit, limited := limits[s.Queue]
		tasks[i].Turn = limited && limit.Turns()
		s.LastTask = tasks[i].ID.String()
	}
	if r.Body, err = json.Marshal(s); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, fireWithin)
	defer cancel()
	version, results, err := l.store.PutRecord(ctx, store.PutRecord{Record: r, Tasks: tasks, Term: term})
	if err != nil || !s.Stored(results) {
		return err
	}
	// Only its numbers are corrected: the ticks have been dealt with.
	r.Version = version
	if r.Body, err = json.Marshal(s); err != nil {
		return err
	}
	_, _, err = l.store.PutRecord(ctx, store.PutRecord{Record: r, Term: term})
	return err
}
