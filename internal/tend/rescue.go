package tend

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tuskqueue/tusk/internal/lifecycle"
	"github.com/tuskqueue/tusk/store"
)

const rescueBatch = 1000

// rescue takes back the tasks of dead workers, and tasks that their live worker does not know about.
func (l *Leader) rescue(ctx context.Context, term int64) (time.Duration, error) {
	if soon, err := l.isBackSoon(ctx); soon || err != nil {
		return l.o.RescueEvery, err
	}
	if !l.lately(term).Rescue {
		return l.o.RescueEvery, nil
	}
	// Held tasks are returned again, the oldest first.
	limit := rescueBatch + l.passed
	tasks, err := l.store.Rescue(ctx, term, limit)
	l.passed = 0
	if err != nil || len(tasks) == 0 {
		return l.o.RescueEvery, err
	}
	begun, err := l.begun(ctx, tasks)
	if err != nil {
		return 0, err
	}
	outcomes := make([]store.Outcome, len(tasks))
	for i := range tasks {
		if tasks[i].Stray { // its handler has not begun
			outcomes[i] = lifecycle.After(&tasks[i], lifecycle.Settings{}, lifecycle.End{Err: lifecycle.ErrShutdown}, 0)
			continue
		}
		settings, err := lifecycle.DecodeSettings(tasks[i].Settings)
		if err != nil {
			l.o.Log.Error("rescue: going on with default settings", "task", tasks[i].ID, "error", err)
		}
		outcomes[i] = lifecycle.Died(&tasks[i], settings, begun[Receipt(tasks[i].ID, tasks[i].Lease)], rand.Float64())
	}
	if err := l.takeBack(ctx, outcomes); err != nil && (ctx.Err() != nil || store.IsForAll(err)) {
		return 0, err
		// This concerns some tasks only. Returned as an error, it would delay the others.
	} else if err != nil {
		l.o.Log.Warn("rescue", "error", err)
	}
	if len(tasks) == limit && l.passed < len(tasks) {
		return 0, nil
	}
	return l.o.RescueEvery, nil
}

// longestGrace limits how long no worker is declared dead after an outage or a jump of the clock.
const longestGrace = 10 * time.Minute

// isBackSoon reports whether the store answered again after an outage, or its clock was set forward, less than the
// longest lease of a worker ago. Until that time is over, a live worker may not have had the time to beat, so no
// worker is declared dead.
func (l *Leader) isBackSoon(ctx context.Context) (bool, error) {
	l.mu.Lock()
	back := l.back
	l.mu.Unlock()
	if back.IsZero() {
		return false, nil
	}
	workers, err := l.store.Workers(ctx)
	if err != nil {
		return false, err
	}
	grace := 3 * l.o.Outage
	for _, w := range workers {
		grace = max(grace, w.ExpiresAt.Sub(w.BeatAt))
	}
	if time.Since(back) < min(grace, longestGrace) {
		return true, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.back.Equal(back) {
		l.back = time.Time{}
	}
	return false, nil
}

// takeBack writes the outcomes of rescued tasks. If the store rejects a batch, it halves it until it finds the task
// that cannot be written, and discards that task. All others are written in any case.
func (l *Leader) takeBack(ctx context.Context, outcomes []store.Outcome) error {
	lost, err := l.store.Finish(ctx, outcomes)
	held := new(store.HeldError)
	switch {
	case err == nil:
		l.report(outcomes, lost)
		return nil
	// All others are written, and the next round returns these again.
	case errors.As(err, &held):
		l.passed += len(held.Tasks)
		l.o.Log.Warn("rescue", "error", err)
		l.report(outcomes, append(lost, held.Tasks...))
		return nil
	case ctx.Err() != nil || store.IsForAll(err):
		return err
	case len(outcomes) > 1:
		half := len(outcomes) / 2
		return errors.Join(l.takeBack(ctx, outcomes[:half]), l.takeBack(ctx, outcomes[half:]))
	case outcomes[0].State == store.Discarded || !errors.Is(err, store.ErrUnstorable):
		l.passed++ // it is returned again, among the oldest
		return fmt.Errorf("task %v: %w", outcomes[0].Task.ID, err)
	}
	o := outcomes[0]
	l.o.Log.Error("rescue: the task cannot be written back, discarding it instead", "task", o.Task.ID, "error", err)
	o.State, o.Delay, o.Trace, o.KeepTurn = store.Discarded, 0, "", false
	o.Reason = "damaged: when its worker had died it could not be written back: " + err.Error()
	return l.takeBack(ctx, []store.Outcome{o})
}

// report reports the tasks that were taken back: all except those in left, which their worker has finished after all or
// a user's transaction holds.
func (l *Leader) report(outcomes []store.Outcome, left []store.ID) {
	out := make(map[store.ID]bool, len(left))
	for _, id := range left {
		out[id] = true
	}
	rescued, strays := 0, map[holding]int{}
	for _, o := range outcomes {
		switch {
		case out[o.Task.ID]:
		case o.Task.Stray:
			strays[holding{o.Task.Worker, o.Task.Lease}]++
		default:
			rescued++
			if l.o.Rescued != nil {
				l.o.Rescued(o)
			}
		}
	}
	if rescued > 0 {
		l.o.Log.Warn("rescue", "tasks", rescued)
	}
	for of, n := range strays {
		l.o.Log.Warn("rescue: a living worker does not know of a lease, its tasks are available again",
			"worker", of.worker, "lease", of.lease.String()[:8], "tasks", n)
	}
}

// holding is a lease and the worker that holds it.
type holding struct {
	worker store.ID
	lease  store.Token
}
