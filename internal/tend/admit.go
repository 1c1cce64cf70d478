package tend

import (
	"context"
	"time"
)

const (
	admitBatch = 5000
	// admitEvery bounds how late a task can become available that was enqueued
	// with a short delay after the last look, and admitSeldom does so after admitQuiet in
	// which none became available.
	admitEvery  = 200 * time.Millisecond
	admitSeldom = 500 * time.Millisecond
	admitQuiet  = 10 * time.Second
)

// admit makes due tasks available.
func (l *Leader) admit(ctx context.Context, term int64) (time.Duration, error) {
	did, err := l.store.Admit(ctx, term, admitBatch)
	if err != nil {
		return 0, err
	}
	if did.Count == admitBatch || did.Cancelled == admitBatch {
		return 0, nil
	}
	every := admitEvery
	if did.Count > 0 {
		l.admitted = time.Now()
	} else if time.Since(l.admitted) > admitQuiet {
		every = admitSeldom
	}
	if did.Next >= 0 {
		return min(did.Next, every), nil
	}
	return every, nil
}

const maintainEvery = 5 * time.Second

// maintain does the engine's own housekeeping.
func (l *Leader) maintain(ctx context.Context, term int64) (time.Duration, error) {
	return maintainEvery, l.o.Maintain(ctx, term)
}
