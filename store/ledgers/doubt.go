package ledgers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// If a server dies or falls silent while it stores tasks, it is unknown whether it did. Tasks that may be stored
// anywhere are then put into a letter in another ledger, so the call succeeds. When the first ledger is back, the
// leader looks for the tasks there, and stores the missing ones in the ledger that has the letter. Nothing is pruned
// until then.
//
// The request may still be in transit: the producer's kernel resends unacknowledged data, even on a connection that the
// producer has closed. So the letter names the server process that reads that connection, and the leader looks only
// after that process has ended.

const (
	endsWithin = 5 * time.Minute // wait for a process that this role may not end; kernels resend no longer
	clocksLag  = time.Minute     // assumed difference between servers' clocks; process numbers are not reused so soon
)

// writeDoubt puts tasks that a ledger may have stored into a letter in another ledger. There is at most one letter: if
// a ledger may have stored it, writeDoubt tries no other and returns the error.
func writeDoubt(ctx context.Context, all []*ledger, in *ledger, tasks []store.NewTask, why error) error {
	unanswered := new(postgres.Unanswered)
	errors.As(why, &unanswered)
	carrier, err := letter{Tasks: tasks, From: in.no + 1, By: unanswered.Process}.carrier()
	if err != nil {
		return err
	}
	err = errAway
	for k := range all[1:] {
		_, err = enqueueAt(ctx, all[(in.no+1+k)%len(all)], []store.NewTask{carrier})
		if !errors.Is(err, store.ErrNotCommitted) {
			break
		}
	}
	return err
}

// resolve checks which tasks of a letter are stored, once nothing is in flight in the ledger that may have them, and
// stores the others.
func (s *Store) resolve(ctx context.Context, all []*ledger, from *ledger, d *doubted, known *mail) error {
	no := d.From - 1
	known.doubts |= 1 << no
	if no >= len(all) {
		return fmt.Errorf("letter %v: ledger %d may have its tasks: %w", d.id, no, errUnseen)
	}
	first := s.far.firstLook(d.id)
	type flight struct {
		gone         bool
		oldest, next int64
	}
	now, err := ask(ctx, all[no], func(ctx context.Context, e *postgres.Store) (f flight, err error) {
		if f.gone = d.By == 0; !f.gone {
			f.gone, err = e.EndProcess(ctx, d.By, d.at.Add(clocksLag))
		}
		if err == nil {
			f.oldest, f.next, err = e.InFlight(ctx)
		}
		return f, err
	})
	if err != nil || !now.gone && time.Since(first) < endsWithin || !s.far.over(d.id, now.oldest, now.next) {
		return err
	}
	ids := make([]store.ID, len(d.Tasks))
	for i := range d.Tasks {
		ids[i] = d.Tasks[i].ID
	}
	stored, err := ask(ctx, all[no], func(ctx context.Context, e *postgres.Store) ([]store.Task, error) {
		return listByID(ctx, e, store.Filter{IDs: ids, NoArgs: true})
	})
	if err != nil {
		return err
	}
	missing := slices.DeleteFunc(slices.Clone(d.Tasks), func(n store.NewTask) bool {
		return slices.ContainsFunc(stored, func(t store.Task) bool { return t.ID == n.ID })
	})
	if len(missing) > 0 {
		if _, err := putAt(ctx, from, missing, (*postgres.Store).Deliver); err != nil {
			return err
		}
	}
	return throwAway(ctx, from, []store.ID{d.id})
}

// inDoubt is what is known about a letter in doubt.
type inDoubt struct {
	first time.Time // time of the first look at it
	floor int64     // the next transaction id of the other ledger's server after its process ended; 0 before
}

func (f *far) firstLook(letter store.ID) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.doubts == nil || len(f.doubts) > farMost {
		f.doubts = map[store.ID]inDoubt{}
	}
	if _, known := f.doubts[letter]; !known {
		f.doubts[letter] = inDoubt{first: time.Now()}
	}
	return f.doubts[letter].first
}

// over reports whether all transactions that were in flight at its first call for a letter have ended.
func (f *far) over(letter store.ID, oldest, next int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := f.doubts[letter]
	if d.floor == 0 || next < d.floor { // the ledger may have been given up and created again
		d.floor = next
		f.doubts[letter] = d
		return false
	}
	if oldest < d.floor {
		return false
	}
	delete(f.doubts, letter)
	return true
}
