package sqlite

import (
	"context"
	"sync/atomic"

	"github.com/tuskqueue/tusk/store"
)

// counters count what this process has done with the store.
type counters struct {
	roundTrips atomic.Int64 // transactions
	queries    atomic.Int64 // requested claims
}

// Measure implements store.Meter. There is no server, so its time is this process's. SQLite does not report how much
// it writes to its log, keeps no dead rows, and no two claims can conflict.
func (s *Store) Measure(context.Context) (store.Measures, error) {
	return store.Measures{
		ServerCPU:  processorTime(),
		WALBytes:   -1,
		RoundTrips: s.counts.roundTrips.Load(),
		Queries:    s.counts.queries.Load(),
	}, nil
}

// Conflicts implements store.Meter.
func (s *Store) Conflicts() int64 { return 0 }
