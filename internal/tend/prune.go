package tend

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/tuskqueue/tusk/store"
)

const (
	pruneBatch = 2000
	pruneEvery = 30 * time.Second
	// prunePause leaves the database to others between two batches.
	prunePause = 20 * time.Millisecond
)

// Forever is an unlimited retention.
const Forever time.Duration = -1

// QueueRetention is how long the finished tasks of one queue are kept, by outcome. A zero field means the value for
// all queues.
type QueueRetention struct {
	Completed time.Duration `json:"completed,omitempty"`
	Cancelled time.Duration `json:"cancelled,omitempty"`
	Discarded time.Duration `json:"discarded,omitempty"`
}

// over returns the retention of a queue with these settings.
func (q QueueRetention) over(all store.Retention) store.Retention {
	keep := func(own, other time.Duration) time.Duration { return max(cmp.Or(own, other), 0) }
	return store.Retention{Completed: keep(q.Completed, all.Completed), Cancelled: keep(q.Cancelled, all.Cancelled),
		Discarded: keep(q.Discarded, all.Discarded)}
}

// prune deletes tasks whose retention is over, one batch at a time.
func (l *Leader) prune(ctx context.Context, term int64) (time.Duration, error) {
	forgotten := l.forgetSuspects(ctx, term)
	keep, _, err := l.Retentions(ctx)
	if err != nil {
		return 0, errors.Join(forgotten, err)
	}
	n, err := l.store.Prune(ctx, term, keep, pruneBatch)
	if err = errors.Join(forgotten, err); n == pruneBatch {
		return prunePause, err
	}
	return pruneEvery, err
}
