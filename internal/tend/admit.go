package tend

import (
	"context"
	"time"
)

const (
	admitBatch = 5000
	// admitEvery bounds how late a task can become available that was enqueued
	// with a short delay after the last look.
	admitEvery = 200 * time.Millisecond
)

// admit makes due tasks available.
func (l *Leader) admit(ctx context.Context, term int64) (time.Duration, error) {
	did, err := l.store.Admit(ctx, term, admitBatch)
	switch {
	case err != nil:
		return 0, err
	case did.Count == admitBatch || did.Cancelled == admitBatch:
		return 0, nil
	case did.Next >= 0 && did.Next < admitEvery:
		return did.Next, nil
	}
	return admitEvery, nil
}

const maintainEvery = 5 * time.Second

// maintain does the engine's own housekeeping.
func (l *Leader) maintain(ctx context.Context, term int64) (time.Duration, error) {
	return maintainEvery, l.o.Maintain(ctx, term)
}
