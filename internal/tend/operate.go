package tend

import (
	"context"
	"time"

	"github.com/tuskqueue/tusk/internal/bulk"
	"github.com/tuskqueue/tusk/internal/loop"
)

// operateIdle is the pause between two looks while there are no operations.
const operateIdle = time.Second

// operate carries on the operations that no other process works on. The records of the operations fence what it does,
// not the term.
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
