package archive

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/internal/duration"
	"github.com/tuskqueue/tusk/store"
)

const retentionName = "retention"

// Retention is how long the archive keeps tasks after they ended.
type Retention struct {
	All    time.Duration            `json:"all,omitempty"` // for queues without an entry; 0 means forever
	Queues map[string]time.Duration `json:"queues,omitempty"`
}

// Of returns how long a queue's tasks are kept; 0 means forever.
func (r Retention) Of(queue string) time.Duration {
	if own, ok := r.Queues[queue]; ok {
		return own
	}
	return r.All
}

// ReadRetention returns how long tasks are kept in the archive.
func ReadRetention(ctx context.Context, s store.Recorder) (Retention, error) {
	r, _, err := document[Retention](ctx, s, recordKind, retentionName)
	return r, err
}

// RulesQueue reports whether a rule of the archive names a queue: a retention or a hold.
func RulesQueue(ctx context.Context, s store.Recorder, queue string) (bool, error) {
	keep, err := ReadRetention(ctx, s)
	if _, kept := keep.Queues[queue]; err != nil || kept {
		return kept, err
	}
	holds, err := Holds(ctx, s)
	return slices.ContainsFunc(holds, func(h Hold) bool { return h.Queue == queue }), err
}

// LongestKeep is the longest retention other than forever.
const LongestKeep = 10 * 365 * 24 * time.Hour

// ErrTooLong says that a retention is longer than LongestKeep.
var ErrTooLong = fmt.Errorf("tasks are kept for %s at most, or for ever", duration.Text(LongestKeep))

// SetRetention sets how long the archive keeps the tasks of a queue. For the queue "", it sets this
// for all queues without a retention of their own. 0 means forever. nil removes the queue's own
// retention. The error is ErrTooLong.
func SetRetention(ctx context.Context, s store.Recorder, queue string, keep *time.Duration) error {
	if keep != nil && *keep > LongestKeep {
		return ErrTooLong
	}
	return change(ctx, s, recordKind, retentionName, func(r *Retention, _ bool) (*Retention, error) {
		switch {
		case queue == "" && keep == nil:
			r.All = 0
		case queue == "":
			r.All = *keep
		case keep == nil:
			r.Queues = maps.Clone(r.Queues)
			delete(r.Queues, queue)
		default:
			if r.Queues = maps.Clone(r.Queues); r.Queues == nil {
				r.Queues = map[string]time.Duration{}
			}
			r.Queues[queue] = *keep
		}
		return r, nil
	})
}

// expired is a cut of all that is past its retention and not held.
type expired struct {
	now   time.Time
	keep  Retention
	holds holds
}

// of implements cut. A file holds the tasks of one day, and is deleted when the last of them may
// be.
func (e expired) of(f *File) share {
	keep := e.keep.Of(f.Queue)
	if keep <= 0 || f.Until.After(e.now.Add(-keep)) {
		return none
	}
	return all - e.holds.of(f)
}

// row implements cut.
func (e expired) row(f *File, r *Row) bool { return !e.holds.row(f, r) }

// forgets implements cut.
func (e expired) forgets() bool { return false }

// Prune deletes what is past its retention and not held. It waits while another process changes the
// archive. The error is ErrBusy if a rerun reads the archive.
func (r *Runner) Prune(ctx context.Context, tell func(done, of int, gone Gone)) (Gone, error) {
	return patiently(ctx, r, func(ctx context.Context) (Gone, error) { return r.prune(ctx, tell) })
}

func (r *Runner) prune(ctx context.Context, tell func(done, of int, gone Gone)) (Gone, error) {
	gone, err := r.cut(ctx, func(now time.Time) (cut, error) { return expiredNow(ctx, r.o.Store, now) }, tell)
	if err != nil && !errors.Is(err, errKeep) {
		return gone, err
	}
	return gone, errors.Join(err, pruneDone(ctx, r.o.Store))
}

func expiredNow(ctx context.Context, s store.Recorder, now time.Time) (expired, error) {
	keep, err := ReadRetention(ctx, s)
	if err != nil {
		return expired{}, err
	}
	holds, err := Holds(ctx, s)
	return expired{now, keep, holds}, err
}

// Prunable returns what Prune would delete now.
func (a *Archive) Prunable(ctx context.Context, s store.Recorder) (Gone, error) {
	what, err := expiredNow(ctx, s, time.Now())
	if err != nil {
		return Gone{}, err
	}
	return a.would(ctx, what)
}

const pruneName = "prune"

// RequestPrune makes a process that archives prune within seconds.
func RequestPrune(ctx context.Context, s store.Recorder) error {
	return change(ctx, s, recordKind, pruneName, func(*struct{}, bool) (*struct{}, error) { return &struct{}{}, nil })
}

// pruneAsked reports whether pruning was requested.
func pruneAsked(ctx context.Context, s store.Recorder) (bool, error) {
	_, r, err := document[struct{}](ctx, s, recordKind, pruneName)
	return r.Version != 0, err
}

// pruneDone deletes the request to prune.
func pruneDone(ctx context.Context, s store.Recorder) error {
	return change(ctx, s, recordKind, pruneName, func(*struct{}, bool) (*struct{}, error) { return nil, nil })
}
