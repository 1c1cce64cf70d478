package ledgers

import (
	"context"
	"errors"
	"maps"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// In a cluster a transaction commits on one node after the other. A task may be there before the
// one that it needs, for a moment, or until a node that was lost is back and its prepared
// transactions are over. But by then every node has prepared its part. So a task that is needed,
// and found nowhere, has been deleted only if it is still not found when everything has ended
// that was in flight at some moment after it was needed. Until then its children wait.

// flight are the transactions of a ledger's server that have not ended: the oldest, and the one
// that begins next.
type flight struct{ oldest, next int64 }

func inFlight(ctx context.Context, e *postgres.Store) (f flight, err error) {
	f.oldest, f.next, err = e.InFlight(ctx)
	return f, err
}

// flights says what is in flight in all ledgers; nil: not all answer, or nobody has to know.
func (s *Store) flights(ctx context.Context, all []*ledger, looking bool) []flight {
	if !s.comesApart || !looking {
		return nil
	}
	flights, errs := each(ctx, all, inFlight)
	if errors.Join(errs...) != nil {
		return nil
	}
	return flights
}

// gone returns the tasks that have been deleted, of those that were just looked for and not found.
// Flights were asked for between: after something was found to need them.
func (f *far) gone(ids []store.ID, found map[store.ID]spot, flights []flight) map[store.ID]bool {
	if flights == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.missed.gone(ids, found, flights)
}

// missed are tasks that were looked for in vain.
type missed struct {
	once   map[store.ID]bool // when transactions from floors on had not begun
	long   map[store.ID]bool // and those below their floors have ended since
	floors []flight
}

func (m *missed) gone(ids []store.ID, found map[store.ID]spot, flights []flight) map[store.ID]bool {
	turned := over(flights, m.floors)
	if turned {
		if len(m.long) > farMost || m.long == nil {
			m.long = map[store.ID]bool{}
		}
		maps.Copy(m.long, m.once)
		m.once, m.floors = map[store.ID]bool{}, flights
	}
	idle, gone := over(flights, flights), map[store.ID]bool{}
	for _, id := range ids {
		if _, is := found[id]; is {
			continue
		}
		if gone[id] = idle || m.long[id]; turned && !gone[id] {
			m.once[id] = true
		}
	}
	return gone
}

// over reports whether all has ended that was in flight before.
func over(now, before []flight) bool {
	for no, f := range before {
		if now[no].oldest < f.next {
			return false
		}
	}
	return true
}
