package couchbase

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// Enqueue implements store.Enqueuer. It stores the tasks in independent parts, and appends them to their lanes once all
// are stored, so that they keep their order.
func (s *Store) Enqueue(ctx context.Context, tasks []store.NewTask) (_ []store.Enqueued, err error) {
	defer says(&err, "enqueue")
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", store.ErrNotCommitted, err)
	}
	results := make([]store.Enqueued, len(tasks))
	parts, needy := partsOf(tasks)
	works := make([]*work, len(parts))
	chain := func(i int) rules.KeyName {
		if needy { // store tasks in the given order
			return rules.KeyName{}
		}
		return nameOf(&tasks[parts[i][0]])
	}
	err = eachOf(len(parts), chain, func(i int) error {
		works[i] = &work{}
		return s.do(ctx, works[i], func(b *rules.Batch) error {
			did, err := b.Enqueue(pick(tasks, parts[i]))
			for n := range did {
				results[parts[i][n]] = did[n]
			}
			return err
		})
	})
	if len(parts) == 1 {
		err = alone(err)
	}
	if err != nil {
		return nil, err
	}
	inOrder(tasks, works)
	return results, s.finishUp(ctx, works...)
}

// mostPart limits roughly the bytes of a part if tasks need others: all of it is first written into one document.
const mostPart = 8 << 20

// partsOf divides tasks into parts. Each task with a key is a part, and all tasks without a key are one part. But if
// any task needs others, tasks without a key are in one part only if they are adjacent, and within mostPart.
func partsOf(tasks []store.NewTask) (parts [][]int, needy bool) {
	needy = slices.ContainsFunc(tasks, func(n store.NewTask) bool { return len(n.Needs) > 0 })
	plain, size := -1, 0 // the part of tasks without a key
	for i := range tasks {
		own := 512 + len(tasks[i].Args) + len(tasks[i].Settings) + 64*len(tasks[i].Needs)
		switch {
		case tasks[i].Key != "":
			parts = append(parts, []int{i})
			if needy {
				plain = -1
			}
		case plain < 0 || needy && size+own > mostPart:
			plain, size = len(parts), own
			parts = append(parts, []int{i})
		default:
			size += own
			parts[plain] = append(parts[plain], i)
		}
	}
	return parts, needy
}

// inOrder moves the available tasks of all works into the first one: the new ones in the given order, then the stored
// ones that were replaced.
func inOrder(tasks []store.NewTask, works []*work) {
	place := map[string]int{}
	for i := range tasks {
		place[tasks[i].ID.String()] = i - len(tasks)
	}
	var ready []*task
	for _, w := range works {
		ready = append(ready, w.ready...)
		w.ready = nil
	}
	if len(works) > 0 {
		at := func(t *task) int { return place[cmp.Or(t.first, t.ID)] }
		slices.SortStableFunc(ready, func(a, b *task) int { return cmp.Compare(at(a), at(b)) })
		works[0].ready = ready
	}
}
