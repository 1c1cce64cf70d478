package ledgers

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// A server may die, or fall silent, while it stores tasks, and nobody can say whether it did.
// Tasks that may live anywhere are then put into a letter in another ledger, so the call
// succeeds. When the first ledger is back, whoever leads looks for them there: what it has is
// there, and what it has not is stored where the letter is. Meanwhile nothing is pruned there.

// writeDoubt puts tasks that a ledger may have stored into a letter in another one. There is one letter at most: where
// it may be stored already it is put into no other ledger, and the error says so.
func writeDoubt(ctx context.Context, all []*ledger, in *ledger, tasks []store.NewTask) error {
	carrier, err := letter{Tasks: tasks, From: in.no + 1}.carrier()
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

// resolve finds out whether the tasks of a letter are stored, once nothing is in flight any more
// in the ledger that may have them, and stores those that are not.
func (s *Store) resolve(ctx context.Context, all []*ledger, from *ledger, d *doubted) error {
	no := d.From - 1
	if no >= len(all) {
		return fmt.Errorf("letter %v: there is no ledger %d", d.id, no)
	}
	s.far.doubt(no)
	type flight struct{ oldest, next int64 }
	now, err := ask(ctx, all[no], func(ctx context.Context, e *postgres.Store) (f flight, err error) {
		f.oldest, f.next, err = e.InFlight(ctx)
		return f, err
	})
	if err != nil || !s.far.over(d.id, now.oldest, now.next) {
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

// noDoubts begins a look at letters.
func (f *far) noDoubts() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.doubts = 0
}

// doubt says that a ledger may have tasks that are in a letter.
func (f *far) doubt(no int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.doubts |= 1 << no
}

// over reports whether all transactions that were in flight at the first look have ended.
func (f *far) over(letter store.ID, oldest, next int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.floors == nil || len(f.floors) > farMost {
		f.floors = map[store.ID]int64{}
	}
	floor, known := f.floors[letter]
	if !known {
		f.floors[letter] = next
		return false
	}
	if oldest < floor {
		return false
	}
	delete(f.floors, letter)
	return true
}
