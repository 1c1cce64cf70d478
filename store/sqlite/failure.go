package sqlite

import (
	"context"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// standing is how many tasks of an error group began to wait for a retry, and how many were discarded. Negative numbers
// mean that they no longer do or are.
type standing struct{ waiting, dead int64 }

// blame counts a failed attempt in its error group and returns the group.
func (w *work) blame(o *store.Outcome, ended time.Time) (int64, error) {
	kind, err := w.kind(o.Task.Queue, o.Task.Kind)
	if err != nil {
		return 0, err
	}
	w.wrote = true
	r, err := w.one("error.count", o.Fingerprint, kind, ended, o.Error, o.Task.ID)
	if err != nil {
		return 0, err
	}
	return r.int(0), nil
}

// regroup adds a task to the counters of its error group, or removes it.
func (w *work) regroup(failure int64, state store.State, by int64) {
	if failure == 0 {
		return
	}
	var s standing
	switch state {
	case store.Retryable:
		s.waiting = by
	case store.Discarded:
		s.dead = by
	default:
		return
	}
	if w.groups == nil {
		w.groups = map[int64]standing{}
	}
	was := w.groups[failure]
	w.groups[failure] = standing{was.waiting + s.waiting, was.dead + s.dead}
}

func (w *work) flushGroups() error {
	for id, s := range w.groups {
		if s == (standing{}) {
			continue
		}
		if _, err := w.run("error.regroup", s.waiting, s.dead, id); err != nil {
			return err
		}
	}
	return nil
}

// Errors implements store.Reader. It walks the groups from the latest one.
func (s *Store) Errors(ctx context.Context, f store.ErrorFilter) ([]store.ErrorGroup, error) {
	limit := f.Limit
	if limit <= 0 {
		limit = 100
	}
	since := int64(-1 << 62)
	if !f.Since.IsZero() {
		since = micros(f.Since)
	}
	var groups []store.ErrorGroup
	err := s.readLong(ctx, func(ctx context.Context, c session) error {
		return c.each(ctx, "error.list", func(r row) error {
			groups = append(groups, store.ErrorGroup{
				Fingerprint: r.text(0), Queue: r.text(1), Kind: r.text(2), Count: r.int(3), Waiting: r.int(4), Dead: r.int(5),
				First: r.time(6), Last: r.time(7), Sample: r.text(8), SampleTask: r.id(9),
			})
			return nil
		}, since, f.Queue, f.Kind, limit)
	})
	return answer(groups, "errors", err)
}
