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

// forgettable reports whether finished tasks may be deleted: not while a ledger that may not
// have heard of their ends is away.
func (f *far) forgettable(ledgers int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.began && f.silent&(1<<ledgers-1) == 0
}

// If tasks are kept for at least keptLong, a look that read all needs is good for lookOld: every
// task that is due for deletion had ended long before that look.
const (
	keptLong = time.Hour
	lookOld  = time.Minute
)

// shortest is the shortest time for which finished tasks are kept before they are deleted.
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

// mayForget reports whether finished tasks may be deleted: each ledger has heard of the ends of
// all tasks that it needs, and no letter in doubt waits for a look at what a ledger has stored.
func (s *Store) mayForget(ctx context.Context, all []*ledger, keep store.Retention) (bool, error) {
	if s.notUnseen() != nil {
		return false, nil // ledgers that this process does not know may need them
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

// lookedAll reports whether a look that began after since found that all of so many ledgers had heard of every end.
func (f *far) lookedAll(since time.Time, ledgers int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.looks.of == ledgers && f.looks.began.After(since)
}

// keepLook notes such a look.
func (f *far) keepLook(began time.Time, ledgers int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looks.began, f.looks.of = began, ledgers
}

// haveHeard is mayForget for all tasks that have ended by now. whole reports whether every ledger answered.
func (s *Store) haveHeard(ctx context.Context, all []*ledger) (ready, whole bool, err error) {
	var after pages
	var read bits // the ledgers whose needs have been read to the end once
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
