package tend

import (
	"context"
	"slices"

	"github.com/tuskqueue/tusk/internal/allot"
	"github.com/tuskqueue/tusk/internal/lifecycle"
	"github.com/tuskqueue/tusk/store"
)

// weigh returns the weights of the waiting tasks of a queue, if the queue has rates. It looks up each task once, and
// forgets tasks that no longer wait.
func (l *Leader) weigh(ctx context.Context, name string, w *allot.Waiting) (map[store.ID]int, error) {
	if !w.Limits.Rated() {
		delete(l.turns.weights, name)
		return nil, nil
	}
	known, weights := l.turns.weights[name], map[store.ID]int{}
	var unknown []store.ID
	for _, g := range w.Groups {
		for _, id := range g.Waiting {
			if weight, ok := known[id]; ok {
				weights[id] = weight
			} else {
				unknown = append(unknown, id)
			}
		}
	}
	for part := range slices.Chunk(unknown, store.MaxPage) {
		tasks, err := l.store.List(ctx, store.Filter{IDs: part, Limit: store.MaxPage, NoArgs: true})
		if err != nil {
			return nil, err
		}
		var seen []store.ID // had a turn before
		for i := range tasks {
			if weights[tasks[i].ID] = l.weightOf(&tasks[i]); !tasks[i].ClaimedAt.IsZero() && tasks[i].Key != "" {
				seen = append(seen, tasks[i].ID)
			}
		}
		if err := l.weighNone(ctx, seen, weights); err != nil {
			return nil, err
		}
	}
	l.turns.weights[name] = weights
	return weights, nil
}

func (l *Leader) weightOf(t *store.Task) int {
	settings, err := lifecycle.DecodeSettings(t.Settings)
	if err != nil {
		l.o.Log.Error("turn: a task counts once", "task", t.ID, "error", err)
	}
	return max(settings.Weight, 1)
}

// weighNone lets those of the tasks start for nothing that were put off before their handlers began: each of them has
// been counted before its first claim. Only tasks with a key are put off so.
func (l *Leader) weighNone(ctx context.Context, ids []store.ID, weights map[store.ID]int) error {
	if len(ids) == 0 {
		return nil
	}
	tasks, err := l.store.List(ctx, store.Filter{IDs: ids, Limit: len(ids), NoArgs: true, Detail: true})
	for i := range tasks {
		if lifecycle.Unbegun(&tasks[i]) {
			weights[tasks[i].ID] = allot.Paid
		}
	}
	return err
}
