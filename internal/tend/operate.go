package tend

import (
	"context"
	"time"

	"github.com/tuskqueue/tusk/internal/bulk"
	"github.com/tuskqueue/tusk/internal/loop"
)

// operate carries on the operations that no other process does. What it does is
// fenced by the operations' records, not by the term.
func (l *Leader) operate() *loop.Loop {
	patience := l.o.TTL * 3 / 2
	l.carrier = bulk.New(l.store, bulk.Options{ID: l.o.NewID(), Patience: patience, Log: l.o.Log})
	return l.chore("operate", 4*patience, func(ctx context.Context, _ int64) (time.Duration, error) {
		return l.carrier.Step(ctx)
	})
}
