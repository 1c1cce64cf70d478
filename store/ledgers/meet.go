package ledgers

import (
	"context"
	"errors"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// A ledger leases nothing to a worker that it does not know. If the last beat of a worker did not reach a ledger, the
// first claim there repeats it, so that the worker need not wait for its next beat. The repetition has the number of
// the original. So the ledger refuses it if a later beat came first. And because the worker has not claimed there
// since, the ledger takes no lease for a stray.

const (
	meetWait   = 100 * time.Millisecond // how long a claim waits for the ledger to answer
	meetWithin = 5 * time.Second        // timeout of a repeated beat
	meetAgain  = 500 * time.Millisecond // pause between two tries
)

// meets reports whether a worker may claim from a ledger. If the worker's last beat did not reach the ledger, meets
// repeats it.
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
		// ErrLate: the ledger has already seen this beat or a later one.
		met := err == nil || errors.Is(err, store.ErrLate)
		if lives := s.leases.visited(visit{worker, l.no}, beat.Seq, met); !lives && err == nil {
			// The worker has signed off meanwhile, before the ledger learned about it.
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

// visit returns the last beat of a worker if it should be repeated to a ledger now.
func (a *leases) visit(to visit) (beat store.Beat, due bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	last, now := a.last[to.worker], time.Now()
	// The worker takes a new identity if no beat is answered for two thirds of the TTL.
	if last.at.IsZero() || now.Sub(last.at) > last.TTL/2 || now.Before(a.visits[to]) {
		return beat, false
	}
	if a.visits == nil || len(a.visits) > mostLeases {
		a.visits = map[visit]time.Time{}
	}
	a.visits[to] = now.Add(meetWithin + meetAgain)
	return last.Beat, true
}

// visited records whether a ledger has accepted the repeated beat. A later beat that was answered meanwhile takes
// precedence. visited reports whether the worker is still alive.
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

// remember stores the last beat of a worker. The caller holds the lock.
func (a *leases) remember(b *store.Beat) {
	if b.TTL <= 0 {
		delete(a.last, b.Worker.ID)
		return
	}
	if a.last == nil {
		a.last = map[store.ID]sent{} // of live workers of this process
	}
	last := sent{*b, time.Now()}
	last.Notes = nil
	if _, known := a.last[b.Worker.ID]; !known {
		a.forgetDead(last.at)
	}
	a.last[b.Worker.ID] = last
}

// forgetDead removes workers whose TTL is over and that did not sign off. The caller holds the lock.
func (a *leases) forgetDead(now time.Time) {
	for worker, last := range a.last {
		if now.Sub(last.at) > last.TTL {
			delete(a.last, worker)
			delete(a.strange, worker)
		}
	}
}
