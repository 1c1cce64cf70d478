package finish

import (
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Lend hands out the one outcome that is ready, so that a claim takes it along to the store. It returns nil if none
// is ready, if several are ready or soon will be, because they are better written together, or if the outcome is more
// than a mere completion, because its write may take long. Settle takes the outcome back.
func (g *Gatherer) Lend() *store.Outcome {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.lent != nil || len(g.ready) != 1 || len(g.ready[0].outcomes) != 1 || !isMere(&g.ready[0].outcomes[0]) ||
		g.soon(patience) > 1 {
		return nil
	}
	g.lent, g.ready = g.ready[0], nil
	g.count.Add(-1)
	g.lent.stamp(time.Now())
	return &g.lent.outcomes[0]
}

// isMere reports whether an outcome is a completion that affects no other task: a transaction may hold tasks that
// share its key or follow it.
func isMere(o *store.Outcome) bool {
	return o.State == store.Completed && o.Error == "" && o.Note == nil && len(o.Then) == 0 && o.Task.Key == ""
}

// isAwaited reports whether another task may wait for an outcome of the batch: for its key, its turn, as the next step
// of its workflow, or to run again.
func (b *batch) isAwaited() bool {
	return slices.ContainsFunc(b.outcomes, func(o store.Outcome) bool {
		return !isMere(&o) || o.Task.Turn || !o.Task.Workflow.IsZero()
	})
}

// Settle takes the result of the lent outcome: it was stored, or refused because its lease is not open. After an error
// the result is unknown, and the outcome is written like all others.
func (g *Gatherer) Settle(lost bool, err error) {
	g.mu.Lock()
	b := g.lent
	g.lent = nil
	if err != nil {
		g.ready = append(g.ready, b)
		g.count.Add(1)
		g.ring()
	}
	g.mu.Unlock()
	if err != nil {
		return
	}
	g.success.Store(time.Now().UnixNano())
	var refused map[store.ID]bool
	if lost {
		refused = set([]store.ID{b.outcomes[0].Task.ID})
	}
	g.done(b.outcomes, refused)
	b.recycle()
}
