package couchbase

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

var _ store.Archiver = (*Store)(nil)

// dueCursor is where a page begins: in a class, behind an instant.
type dueCursor struct {
	State store.State
	Queue string
	After int64
}

// Due implements store.Archiver. It walks the index of finished tasks class by class. The index may be behind, so the
// documents are judged: a task that has gone, or has another end than the index knows, is not handed over.
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
			ends, err := s.endedNext(ctx, &c, at.After, min(limit, store.MaxPage))
			if err != nil {
				return due, err
			}
			if len(ends) == 0 {
				break
			}
			at.After = ends[len(ends)-1].At
			each, err := s.endings(ctx, ends)
			if err != nil {
				return due, err
			}
			if due.Tasks, err = s.stillEnded(ctx, each); err != nil {
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

// endedNext returns about limit tasks of a class that ended after an instant. The index has those of one instant in no
// order, so a page ends between two instants.
func (s *Store) endedNext(ctx context.Context, c *class, after int64, limit int) ([]ended, error) {
	ends, err := s.ended(ctx, c, after, c.until, limit+1)
	if err != nil || len(ends) <= limit {
		return ends, err
	}
	last := ends[limit-1].At
	if ends[limit].At != last {
		return ends[:limit], nil
	}
	whole, err := s.ended(ctx, c, last-1, last, store.MaxPage)
	ends = slices.DeleteFunc(ends, func(e ended) bool { return e.At == last })
	return append(ends, whole...), err
}

// stillEnded returns those tasks that have the end given, with their history. What does not fit into a page waits for
// the next batch.
func (s *Store) stillEnded(ctx context.Context, ends []rules.Ending) ([]store.Task, error) {
	at := map[store.ID]int64{}
	for _, e := range ends {
		at[e.ID] = e.At
	}
	tasks, err := s.List(ctx, store.Filter{IDs: slices.Collect(maps.Keys(at)), Limit: store.MaxPage, Detail: true})
	return slices.DeleteFunc(tasks, func(t store.Task) bool {
		return !t.State.Finished() || rules.EndingOf(&t).At != at[t.ID]
	}), err
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
