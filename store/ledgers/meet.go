package ledgers

import (
	"context"
	"errors"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// A ledger has no tasks for a worker that it does not know. If the last beat of a worker did not reach a ledger, the
// first claim there repeats that beat, so the worker need not wait for its next one. The repetition is as good as the
// beat itself: it has its number, so the ledger refuses it if a later beat came first; and the worker has claimed
// nothing there since, so the ledger takes no lease for one that the worker does not know of.

const (
	meetWait   = 100 * time.Millisecond // how long a claim waits for the ledger to answer
	meetWithin = 5 * time.Second        // the limit for the answer
	meetAgain  = 500 * time.Millisecond // the pause between two tries
)

// meets reports whether a worker may claim from a ledger. If the last beat did not reach the ledger, it repeats that
// beat.
func (s *Store) meets(ctx context.Context, l *ledger, worker store.ID) bool {
	if !s.leases.unmet(worker, l.no) {
		return true
	}
	if _, _, err := l.present(); err != nil {
		return false
	}
	beat, due := s.leases.visit(visit{worker, l.no})
	if !due {
		return false
	}
	told := make(chan bool, 1)
	started := s.start(func() {
		within, cancel := context.WithTimeout(s.life, meetWithin)
		defer cancel()
		_, err := ask(within, l, func(ctx context.Context, e *postgres.Store) ([]store.Stop, error) {
			return e.Extend(ctx, s.leases.beat(beat, l.no))
		})
		// An error that it is late says that the ledger has seen this beat already, or a later one.
		met := err == nil || errors.Is(err, store.ErrLate)
		if lives := s.leases.visited(visit{worker, l.no}, beat.Seq, met); !lives && err == nil {
			// It has signed off meanwhile, and the ledger has learnt of it only now.
			beat.TTL, beat.Holds, beat.Seq = 0, nil, beat.Seq+1
			_, _ = ask(within, l, func(ctx context.Context, e *postgres.Store) ([]store.Stop, error) {
				return e.Extend(ctx, beat)
			})
		}
		s.turns.heat(l.no, met)
		told <- met
	})
	if !started {
		return false
	}
	wait := time.NewTimer(meetWait)
	defer wait.Stop()
	select {
	case met := <-told:
		return met
	case <-wait.C:
	case <-ctx.Done():
	}
	return false
}

// visit returns the last beat of a worker, if it is time to repeat it to a ledger.
func (a *leases) visit(to visit) (beat store.Beat, due bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	last, now := a.last[to.worker], time.Now()
	// The worker gives up its identity if no beat is answered for two thirds of the TTL.
	if last.at.IsZero() || now.Sub(last.at) > last.TTL/2 || now.Before(a.visits[to]) {
		return beat, false
	}
	if a.visits == nil || len(a.visits) > mostLeases {
		a.visits = map[visit]time.Time{}
	}
	a.visits[to] = now.Add(meetWithin + meetAgain)
	return last.Beat, true
}

// visited notes whether a ledger has heard of a worker by a beat. If a later beat was answered meanwhile, that decides.
// It reports whether the worker still lives.
func (a *leases) visited(to visit, seq int64, met bool) (lives bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	last, lives := a.last[to.worker]
	if !met {
		a.visits[to] = time.Now().Add(meetAgain)
		return lives
	}
	delete(a.visits, to)
	if !lives || last.Seq != seq {
		return lives
	}
	if a.strange[to.worker] &^= 1 << to.no; a.strange[to.worker] == 0 {
		delete(a.strange, to.worker)
	}
	return true
}

// remember keeps the last beat of a worker. The caller holds the lock.
func (a *leases) remember(b *store.Beat) {
	if b.TTL <= 0 {
		delete(a.last, b.Worker.ID)
		return
	}
	if a.last == nil {
		a.last = map[store.ID]sent{} // of the workers of this process that live
	}
	last := sent{*b, time.Now()}
	last.Notes = nil
	if _, known := a.last[b.Worker.ID]; !known {
		a.forgetDead(last.at)
	}
	a.last[b.Worker.ID] = last
}

// forgetDead forgets workers that did not sign off and have not beaten for their time to live. The caller holds the
// lock.
func (a *leases) forgetDead(now time.Time) {
	for worker, last := range a.last {
		if now.Sub(last.at) > last.TTL {
			delete(a.last, worker)
			delete(a.strange, worker)
		}
	}
}
