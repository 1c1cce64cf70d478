package ledgers

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// forgettable reports whether finished tasks may be deleted: no ledger is away that may not know their ends.
func (f *far) forgettable(ledgers int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.began && f.silent&(1<<ledgers-1) == 0
}

// If tasks are kept for at least keptLong, the result of a look that read all needs is valid for lookOld: every task
// that is due for deletion had ended long before that look.
const (
	keptLong = time.Hour
	lookOld  = time.Minute
)

// shortest returns the shortest time for which finished tasks are kept.
func shortest(keep store.Retention) time.Duration {
	least := time.Duration(math.MaxInt64)
	for _, one := range append(slices.Collect(maps.Values(keep.Queues)), keep) {
		for _, d := range []time.Duration{one.Completed, one.Cancelled, one.Discarded} {
			if d > 0 {
				least = min(least, d)
			}
		}
	}
	return least
}

// mayForget reports whether finished tasks may be deleted: each ledger knows the ends of all tasks that it needs, and
// no letter in doubt has to be resolved.
func (s *Store) mayForget(ctx context.Context, all []*ledger, keep store.Retention) (bool, error) {
	if s.notUnseen() != nil {
		return false, nil // unknown ledgers may need them
	}
	if len(all) == 1 {
		return true, nil
	}
	began := time.Now()
	if shortest(keep) >= keptLong && s.far.lookedAll(began.Add(-lookOld), len(all)) {
		return true, nil
	}
	ready, whole, err := s.haveHeard(ctx, all)
	if ready && whole {
		s.far.keepLook(began, len(all))
	}
	return ready, err
}

// lookedAll reports whether a look that began after since found that all ledgers knew every end. The number of ledgers
// must still be the same.
func (f *far) lookedAll(since time.Time, ledgers int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.looks.of == ledgers && f.looks.began.After(since)
}

// keepLook records such a look.
func (f *far) keepLook(began time.Time, ledgers int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looks.began, f.looks.of = began, ledgers
}

// haveHeard is mayForget for all tasks that have ended by now. whole reports whether every ledger answered.
func (s *Store) haveHeard(ctx context.Context, all []*ledger) (ready, whole bool, err error) {
	var after pages
	var read bits // ledgers whose needs have been read completely
	for whole = true; ; {
		_, doubts, err := s.lookAfter(ctx, all, &after)
		whole = whole && err == nil
		for no := range all {
			if after[no] == (store.ID{}) {
				read |= 1 << no
			}
		}
		switch everything := read == 1<<len(all)-1; {
		case err != nil && !errors.Is(err, store.ErrUnavailable):
			return false, false, err
		case doubts != 0 || err != nil && !everything:
			return false, false, nil
		case everything:
			return s.far.forgettable(len(all)), whole, nil
		}
	}
}
