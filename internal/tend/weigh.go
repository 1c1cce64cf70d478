package tend

import (
	"context"
	"slices"
	"strings"

	"github.com/tuskqueue/tusk/internal/allot"
	"github.com/tuskqueue/tusk/internal/lifecycle"
	"github.com/tuskqueue/tusk/store"
)

// weigh returns the weights of the waiting tasks of a queue, if the queue has rates. It reads each task once, and
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
			if weights[tasks[i].ID] = l.weightOf(&tasks[i]); mayBePutOff(&tasks[i]) {
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

// mayBePutOff reports whether a task may have been claimed and postponed before its handler began, like the first
// stage of a pipeline.
func mayBePutOff(t *store.Task) bool {
	return !t.ClaimedAt.IsZero() && t.Key != "" && strings.Contains(t.Kind, ".")
}

// detailsAtOnce is how many tasks are read with their attempts at a time. Those may be large.
const detailsAtOnce = 16

// weighNone gives no weight to tasks that were postponed before their handlers began: each of them was counted before
// its first claim.
func (l *Leader) weighNone(ctx context.Context, ids []store.ID, weights map[store.ID]int) error {
	for part := range slices.Chunk(ids, detailsAtOnce) {
		f := store.Filter{IDs: part, Limit: len(part), NoArgs: true, NoStates: true, Detail: true}
		tasks, err := l.store.List(ctx, f)
		if err != nil {
			return err
		}
		for i := range tasks {
			if lifecycle.Unbegun(&tasks[i]) {
				weights[tasks[i].ID] = allot.Paid
			}
		}
	}
	return nil
}
