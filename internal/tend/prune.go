package tend

import (
	"context"
	"time"
)

const (
	pruneBatch = 2000
	pruneEvery = 30 * time.Second
	// prunePause leaves the database to others between two batches.
	prunePause = 20 * time.Millisecond
)

// prune deletes what is past its retention, a batch at a time.
func (l *Leader) prune(ctx context.Context, term int64) (time.Duration, error) {
	if err := l.forgetSuspects(ctx, term); err != nil {
		return 0, err
	}
	n, err := l.store.Prune(ctx, term, l.o.Retention(), pruneBatch)
	if n == pruneBatch {
		return prunePause, err
	}
	return pruneEvery, err
}
