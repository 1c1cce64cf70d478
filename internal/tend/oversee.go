package tend

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/internal/bulk"
	"github.com/tuskqueue/tusk/internal/loop"
	"github.com/tuskqueue/tusk/internal/tick"
	"github.com/tuskqueue/tusk/store"
)

// overseen is the engine's last answer about all chores.
type overseen struct {
	term   int64
	at     time.Time
	chores store.Chores
}

// choresByKind returns the chores that depend on records, by the kind of record.
func (l *Leader) choresByKind() map[string]*loop.Loop {
	return map[string]*loop.Loop{tick.RecordKind: l.scheduling, bulk.RecordKind: l.operating,
		StrangerKind: l.recalling}
}

// mayHave reports whether records of a kind may exist.
func (l *Leader) mayHave(term int64, kind string) bool {
	return slices.Contains(l.lately(term).Records, kind)
}

// overseenFor is how long the engine's answer is valid. The engine is queried again every admitRests.
const overseenFor = admitRests + admitRests/2

// oversee queries the engine for work and wakes the chores that have some. The query also renews the term, unless
// that was done a moment ago.
func (l *Leader) oversee(ctx context.Context, term int64) (store.Chores, error) {
	byKind := l.choresByKind()
	by, asked := store.Candidate{ID: l.o.ID, Term: term}, time.Now()
	if l.renewal() < l.o.TTL/6 {
		by.TTL = l.o.TTL
	}
	c, err := l.o.Oversee(ctx, by, slices.Collect(maps.Keys(byKind))...)
	if err != nil {
		return c, err
	}
	l.renewed(term, asked, c.Renewed)
	l.mu.Lock()
	before := l.seen.chores
	l.seen = overseen{term, time.Now(), c}
	l.mu.Unlock()
	if c.Rescue && !before.Rescue {
		l.rescuing.Wake()
	}
	if c.Turns && !before.Turns {
		l.turning.Wake()
	}
	for kind, chore := range byKind {
		if slices.Contains(c.Records, kind) && !slices.Contains(before.Records, kind) {
			chore.Wake()
		}
	}
	return c, nil
}

// lately returns the engine's last answer about all chores. If that is too old, it says that each chore may have
// work.
func (l *Leader) lately(term int64) store.Chores {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen.term != term || time.Since(l.seen.at) > overseenFor {
		return store.Chores{Rescue: true, Turns: true, Records: slices.Collect(maps.Keys(l.choresByKind()))}
	}
	return l.seen.chores
}
