package couchbase

import (
	"context"
	"fmt"

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
	results := make([]store.Enqueued, len(tasks))
	works := make([]*work, len(tasks))
	for _, wave := range waves(tasks) {
		err := each(len(wave), func(i int) error {
			for _, part := range wave[i] {
				w := &work{}
				works[part[0]] = w
				if err := s.enqueuePart(ctx, w, tasks, part, results); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	var done []*work
	for _, w := range works {
		if w != nil {
			done = append(done, w)
		}
	}
	inOrder(tasks, done)
	return results, s.finishUp(ctx, done...)
}

func (s *Store) enqueuePart(
	ctx context.Context, w *work, tasks []store.NewTask, part []int, results []store.Enqueued,
) error {
	some := make([]store.NewTask, len(part))
	for i, at := range part {
		some[i] = trimmed(tasks[at])
	}
	return s.do(ctx, w, func(b *rules.Batch) error {
		did, err := b.Enqueue(some)
		for i := range did {
			results[part[i]] = did[i]
		}
		return err
	})
}

// waves divides tasks into parts that are stored one after another, and those into chains that can be stored beside
// each other. A chain is the tasks of one key, each a part by itself, or all that have none, which are one part.
// Where tasks need others, what was given first is stored first.
func waves(tasks []store.NewTask) (all [][][][]int) {
	needy := false
	for i := range tasks {
		needy = needy || len(tasks[i].Needs) > 0
	}
	if !needy {
		var wave [][][]int
		chain := map[rules.KeyName]int{}
		for i := range tasks {
			n := &tasks[i]
			name := rules.KeyName{}
			if n.Key != "" {
				name = rules.KeyName{Queue: n.Queue, Tenant: n.Tenant, Key: n.Key}
			}
			at, known := chain[name]
			switch {
			case !known:
				chain[name] = len(wave)
				wave = append(wave, [][]int{{i}})
			case n.Key == "":
				wave[at][0] = append(wave[at][0], i)
			default:
				wave[at] = append(wave[at], []int{i})
			}
		}
		return [][][][]int{wave}
	}
	for i := range tasks {
		if last := len(all) - 1; last >= 0 && tasks[i].Key == "" && tasks[i-1].Key == "" {
			all[last][0][0] = append(all[last][0][0], i)
			continue
		}
		all = append(all, [][][]int{{{i}}})
	}
	return all
}

// inOrder moves what is to be lined up into one work, in the order in which the tasks were given.
func inOrder(tasks []store.NewTask, works []*work) {
	ready := map[string]*task{}
	var rest []*task
	given := map[string]bool{}
	for i := range tasks {
		given[tasks[i].ID.String()] = true
	}
	for _, w := range works {
		for _, t := range w.ready {
			if given[t.ID] {
				ready[t.ID] = t
			} else {
				rest = append(rest, t) // that one of them has replaced
			}
		}
		w.ready = nil
	}
	if len(works) == 0 {
		return
	}
	for i := range tasks {
		if t := ready[tasks[i].ID.String()]; t != nil {
			works[0].ready = append(works[0].ready, t)
		}
	}
	works[0].ready = append(works[0].ready, rest...)
}
