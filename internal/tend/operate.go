package tend

import (
	"context"
	"time"

	"github.com/tuskqueue/tusk/internal/bulk"
	"github.com/tuskqueue/tusk/internal/loop"
)

// operateIdle is the pause between two rounds while there are no operations.
const operateIdle = time.Second

// operate carries out the operations that no other process works on. They are fenced by the versions of their
// records, not by the term.
func (l *Leader) operate() *loop.Loop {
	patience := l.o.TTL * 3 / 2
	l.carrier = bulk.New(l.store, bulk.Options{ID: l.o.NewID(), Patience: patience, Log: l.o.Log})
	return l.chore("operate", 4*patience, func(ctx context.Context, term int64) (time.Duration, error) {
		if !l.mayHave(term, bulk.RecordKind) {
			return operateIdle, nil
		}
		return l.carrier.Keep(ctx)
	})
}
