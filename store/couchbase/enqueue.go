package couchbase

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// Enqueue implements store.Enqueuer.
// It stores tasks in parts, each of which is written as one, and lines them up when all are stored, so that those of a
// lane keep their order.
func (s *Store) Enqueue(ctx context.Context, tasks []store.NewTask) (_ []store.Enqueued, err error) {
	defer says(&err, "enqueue")
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", store.ErrNotCommitted, err)
	}
	tasks = trimmed(tasks)
	results := make([]store.Enqueued, len(tasks))
	parts, needy := partsOf(tasks)
	works := make([]*work, len(parts))
	chain := func(i int) rules.KeyName {
		if needy { // what was given first is stored first
			return rules.KeyName{}
		}
		return nameOf(&tasks[parts[i][0]])
	}
	err = eachOf(len(parts), chain, func(i int) error {
		var some []store.NewTask
		for _, at := range parts[i] {
			some = append(some, tasks[at])
		}
		works[i] = &work{}
		return s.do(ctx, works[i], func(b *rules.Batch) error {
			did, err := b.Enqueue(some)
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

// mostPart is about how many bytes the tasks of a part may have that need what is stored: all of them are first written
// into one document.
const mostPart = 8 << 20

// partsOf divides tasks into parts: each that has a key is one by itself, and those that have none are one together.
// Where tasks need others, only those that stand beside each other are, and not too many if some are stored already.
func partsOf(tasks []store.NewTask) (parts [][]int, needy bool) {
	here, bound := map[store.ID]bool{}, false
	for i := range tasks {
		for _, n := range tasks[i].Needs {
			needy, bound = true, bound || !here[n.Task]
		}
		here[tasks[i].ID] = true
	}
	plain, size := -1, 0 // the part of those without a key
	for i := range tasks {
		own := 512 + len(tasks[i].Args) + len(tasks[i].Settings) + 64*len(tasks[i].Needs)
		switch {
		case tasks[i].Key != "":
			parts = append(parts, []int{i})
			if needy {
				plain = -1
			}
		case plain < 0 || bound && size+own > mostPart:
			plain, size = len(parts), own
			parts = append(parts, []int{i})
		default:
			size += own
			parts[plain] = append(parts[plain], i)
		}
	}
	return parts, needy
}

// inOrder moves what is to be lined up into the first work, in the order in which the tasks were given, and behind them
// those that one of them has replaced.
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
