package query

import (
	"slices"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

// Part returns the part of a workflow that is within bounds. A task that is out of bounds is not named anywhere, not
// even among the needs of others.
func Part(w *tusk.WorkflowInfo, sees func(queue, tenant string) bool) *tusk.WorkflowInfo {
	part := &tusk.WorkflowInfo{ID: w.ID, States: map[tusk.State]int{}}
	seen := map[tusk.ID]bool{}
	for _, t := range w.Tasks {
		if sees(t.Queue, t.Tenant) {
			part.Tasks, seen[t.ID] = append(part.Tasks, t), true
			part.States[t.State]++
		}
	}
	if len(part.Tasks) == len(w.Tasks) {
		return part
	}
	for i := range part.Tasks {
		detail := *part.Tasks[i].Detail
		detail.Needs = slices.DeleteFunc(slices.Clone(detail.Needs), func(n store.NeedState) bool { return !seen[n.Task] })
		part.Tasks[i].Detail = &detail
	}
	return part
}
