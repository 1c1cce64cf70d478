package tend

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/internal/lifecycle"
	"github.com/tuskqueue/tusk/store"
)

const rescueBatch = 1000

// rescue takes back the tasks of dead workers.
func (l *Leader) rescue(ctx context.Context, term int64) (time.Duration, error) {
	tasks, err := l.store.Rescue(ctx, term, rescueBatch)
	if err != nil || len(tasks) == 0 {
		return l.o.RescueEvery, err
	}
	keepTurn, err := l.keepTurns(ctx, tasks)
	if err != nil {
		return 0, err
	}
	begun, err := l.begun(ctx, tasks)
	if err != nil {
		return 0, err
	}
	outcomes := make([]store.Outcome, len(tasks))
	for i := range tasks {
		settings, err := lifecycle.DecodeSettings(tasks[i].Settings)
		if err != nil {
			l.o.Log.Error("rescue: going on with default settings", "task", tasks[i].ID, "error", err)
		}
		outcomes[i] = lifecycle.Died(&tasks[i], settings, begun[Receipt(tasks[i].ID, tasks[i].Lease)], rand.Float64())
		outcomes[i].KeepTurn = tasks[i].Turn && keepTurn[tasks[i].Queue]
	}
	lost, err := l.store.Finish(ctx, outcomes)
	if err != nil {
		return 0, err
	}
	l.report(outcomes, lost)
	if len(tasks) == rescueBatch {
		return 0, nil
	}
	return l.o.RescueEvery, nil
}

// keepTurns tells the queues whose tasks keep their turn while they are retried.
func (l *Leader) keepTurns(ctx context.Context, tasks []store.Task) (map[string]bool, error) {
	if !slices.ContainsFunc(tasks, func(t store.Task) bool { return t.Turn }) {
		return nil, nil
	}
	limits, err := l.limits(ctx)
	if err != nil {
		return nil, err
	}
	keep := map[string]bool{}
	for queue, of := range limits {
		keep[queue] = of.BlockOnRetry
	}
	return keep, nil
}

// report leaves out the tasks that their worker finished after all.
func (l *Leader) report(outcomes []store.Outcome, lost []store.ID) {
	l.o.Log.Warn("rescue", "tasks", len(outcomes)-len(lost))
	if l.o.Rescued == nil {
		return
	}
	late := make(map[store.ID]bool, len(lost))
	for _, id := range lost {
		late[id] = true
	}
	for _, o := range outcomes {
		if !late[o.Task.ID] {
			l.o.Rescued(o)
		}
	}
}
