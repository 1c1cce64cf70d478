package couchbase

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// dueCursor is where a page begins: after an instant in a class.
type dueCursor struct {
	State store.State
	Queue string
	After int64
}

// Due implements store.Archiver. It reads the index of finished tasks class by class, and then the documents, which may
// have changed since: it skips a task that was deleted, or whose end differs from the one in the index.
func (s *Store) Due(ctx context.Context, keep store.Retention, from string, limit int) (due store.Due, err error) {
	defer says(&err, "due")
	var begin dueCursor
	if from != "" {
		if err := json.Unmarshal([]byte(from), &begin); err != nil {
			return due, fmt.Errorf("the cursor %q is none", from)
		}
	}
	for _, c := range s.classes(ctx, &keep) {
		at := dueCursor{State: c.state, Queue: c.queue}
		switch of := cmp.Or(cmp.Compare(at.State, begin.State), cmp.Compare(at.Queue, begin.Queue)); {
		case of < 0:
			continue
		case of == 0:
			at = begin
		}
		for {
			ends, last, err := s.endedNext(ctx, &c, at.After, min(limit, store.MaxPage))
			if err != nil {
				return due, err
			}
			if last == 0 {
				break
			}
			at.After = last
			if due.Tasks, err = s.stillEnded(ctx, ends); err != nil {
				return due, err
			}
			if len(due.Tasks) > 0 {
				next, err := json.Marshal(at)
				due.Receipt, due.Next = rules.Receipt(due.Tasks), string(next)
				return due, err
			}
		}
	}
	return due, nil
}

// endedNext returns about limit tasks of a class that ended after an instant: all that ended up to last, which is 0 if
// there are none. The index does not order tasks that ended at the same instant, so a page ends between two instants.
func (s *Store) endedNext(
	ctx context.Context, c *class, after int64, limit int,
) (ends []rules.Ending, last int64, err error) {
	rows, err := s.ended(ctx, c, after, c.until, limit+1)
	if err == nil && len(rows) > limit { // more tasks may have ended at the last instant
		at := rows[limit].At
		if rows = slices.DeleteFunc(rows, func(e ended) bool { return e.At == at }); len(rows) == 0 {
			// The caller must go on after this instant even if its tasks have changed meanwhile.
			last = at
			rows, err = s.ended(ctx, c, at-1, at, math.MaxInt32)
		}
	}
	for err == nil && len(rows) > 0 && len(ends) < limit { // one row may be a sheet with many tasks
		n := 1
		for last = rows[0].At; n < len(rows) && rows[n].At == last; n++ {
		}
		var some []rules.Ending
		some, err = s.endings(ctx, rows[:n])
		ends, rows = append(ends, some...), rows[n:]
	}
	return ends, last, err
}

// stillEnded returns the tasks that still have the given end, with their history.
func (s *Store) stillEnded(ctx context.Context, ends []rules.Ending) (still []store.Task, err error) {
	for some := range slices.Chunk(ends, store.MaxPage) {
		at := map[store.ID]int64{}
		for _, e := range some {
			at[e.ID] = e.At
		}
		tasks, err := s.List(ctx, store.Filter{IDs: slices.Collect(maps.Keys(at)), Limit: store.MaxPage, Detail: true})
		if err != nil {
			return nil, err
		}
		for _, t := range tasks {
			if t.State.Finished() && rules.EndingOf(&t).At == at[t.ID] {
				still = append(still, t)
			}
		}
	}
	return still, nil
}

// Release implements store.Archiver.
func (s *Store) Release(ctx context.Context, receipt []byte) (back []store.ID, err error) {
	defer says(&err, "release")
	ends, err := rules.ReadReceipt(receipt)
	if err == nil {
		_, back, err = s.deleteEnded(ctx, ends)
	}
	return back, err
}
