package ledgers

import (
	"context"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

var (
	_ store.Examiner  = (*Store)(nil)
	_ store.Connected = (*Store)(nil)
	_ store.Granter   = (*Store)(nil)
	_ store.Meter     = (*Store)(nil)
	_ store.Witness   = (*Store)(nil)
)

// Witnesses implements store.Witness.
func (s *Store) Witnesses() bool {
	all := s.all.Load()
	if all == nil {
		return false
	}
	for _, l := range *all {
		if engine, _, err := l.present(); err == nil && !engine.Witnesses() {
			return false
		}
	}
	return true
}

// Examine implements store.Examiner. It adds up what can be added, and otherwise reports the worst value. The clock,
// the version and the leader are home's.
func (s *Store) Examine(ctx context.Context) (store.Health, error) {
	parts, err := fromAll(ctx, s, query, func(ctx context.Context, e *postgres.Store) (store.Health, error) {
		return e.Examine(ctx)
	})
	if err != nil {
		return store.UnknownHealth(), err
	}
	sum := parts[0]
	home := s.serverOf(0)
	counted := map[*server]bool{home: true}
	for i := range parts {
		h, at := &parts[i], s.serverOf(i)
		if i > 0 {
			sum.Bytes, sum.DeadRows, sum.LiveRows = sum.Bytes+h.Bytes, sum.DeadRows+h.DeadRows, sum.LiveRows+h.LiveRows
			sum.Segments, sum.Behind = sum.Segments+h.Segments, sum.Behind+h.Behind
			worst(&sum, h)
		}
		if !counted[at] {
			sum.Connections, sum.ConnectionsMost = sum.Connections+h.Connections, sum.ConnectionsMost+h.ConnectionsMost
		}
		counted[at] = true
	}
	return sum, nil
}

func (s *Store) serverOf(no int) *server {
	at, _ := (*s.all.Load())[no].whereabouts()
	return at
}

// worst replaces the values of sum that are better than those of h.
func worst(sum, h *store.Health) {
	sum.Pooled = sum.Pooled || h.Pooled
	if h.OpenFor > sum.OpenFor {
		sum.OpenFor, sum.OpenBy, sum.OpenEnd = h.OpenFor, h.OpenBy, h.OpenEnd
	}
	if !h.OldestCompleted.IsZero() && (sum.OldestCompleted.IsZero() || h.OldestCompleted.Before(sum.OldestCompleted)) {
		sum.OldestCompleted = h.OldestCompleted
	}
	if h.DiskFree >= 0 && (sum.DiskFree < 0 || h.DiskFree < sum.DiskFree) {
		sum.DiskFree, sum.DiskSize = h.DiskFree, h.DiskSize
	}
}

// Connections implements store.Connected.
func (s *Store) Connections() (sum store.Connections) {
	for _, at := range s.servers() {
		now := at.pool.Stat()
		sum.Most += int(now.MaxConns())
		sum.Used += int(now.AcquiredConns())
		sum.Waits += now.EmptyAcquireCount()
	}
	return sum
}

// Roles implements store.Granter.
func (s *Store) Roles(ctx context.Context, prefix string, apply bool) ([]string, error) {
	all, err := s.ledgers(ctx)
	if err != nil {
		return nil, err
	}
	var statements []string
	for _, l := range all {
		part, err := ask(ctx, l, func(ctx context.Context, e *postgres.Store) ([]string, error) {
			return e.Roles(ctx, prefix, apply)
		})
		if err != nil {
			return nil, err
		}
		at, name := l.whereabouts()
		statements = append(statements, "-- "+at.name+", "+name)
		statements = append(statements, part...)
	}
	return statements, nil
}

// Measure implements store.Meter. It counts the figures of a server once, not for each of its ledgers.
func (s *Store) Measure(ctx context.Context) (sum store.Measures, err error) {
	parts, err := fromAll(ctx, s, query, func(ctx context.Context, e *postgres.Store) (store.Measures, error) {
		return e.Measure(ctx)
	})
	if err != nil {
		return sum, err
	}
	counted := map[*server]bool{}
	for i := range parts {
		m, at := &parts[i], s.serverOf(i)
		sum.DeadRows, sum.RoundTrips = sum.DeadRows+m.DeadRows, sum.RoundTrips+m.RoundTrips
		sum.Queries, sum.Conflicts = sum.Queries+m.Queries, sum.Conflicts+m.Conflicts
		if !counted[at] {
			sum.ServerCPU, sum.WALBytes = sum.ServerCPU+m.ServerCPU, sum.WALBytes+m.WALBytes
		}
		counted[at] = true
	}
	return sum, nil
}

// Conflicts implements store.Meter. It includes ledgers that are away, and is not less once a ledger has moved.
func (s *Store) Conflicts() (sum int64) {
	all := s.all.Load()
	if all == nil {
		return 0
	}
	for _, l := range *all {
		l.mu.Lock()
		if sum += l.conflicts; l.engine != nil {
			sum += l.engine.Conflicts()
		}
		l.mu.Unlock()
	}
	return sum
}
