package tend

import (
	"context"
	"time"
)

const (
	admitBatch = 5000
	// admitEvery limits how late a task becomes available if it was enqueued with a short delay after the last round.
	// If no task became available for admitQuiet, admitSeldom applies instead.
	admitEvery  = 200 * time.Millisecond
	admitSeldom = 500 * time.Millisecond
	admitQuiet  = 10 * time.Second
	// admitRests applies if the engine announces such tasks at once: only tasks whose hint was lost are then late.
	admitRests = time.Second
	// admitApart is how long due tasks wait for others once some became available: a round costs far more than a task
	// in it.
	admitApart = 20 * time.Millisecond
)

// admit makes due tasks available.
func (l *Leader) admit(ctx context.Context, term int64, told bool) (time.Duration, error) {
	quiet := time.Since(l.admitted) > admitQuiet
	every := admitEvery
	if l.prompt() {
		every = admitRests
	} else if quiet {
		every = admitSeldom
	}
	if quiet && l.o.Oversee != nil {
		// After an error, the next Admit either reports it again or succeeds.
		if c, err := l.oversee(ctx, term); err == nil && c.Admit != 0 {
			return l.admitAgain(c.Admit, every), nil
		}
	}
	due := told || !l.dueAt.IsZero() && !time.Now().Before(l.dueAt)
	did, err := l.store.Admit(ctx, term, admitBatch)
	if err != nil {
		return 0, err
	}
	if did.Count >= admitBatch || did.Cancelled >= admitBatch {
		return 0, nil
	}
	if did.Count > 0 {
		l.admitted = time.Now()
	}
	if due && !l.noTurns.Load() {
		l.turnCalls.hear(l.turnCalls.apart) // tasks that were due may now wait for a turn
	}
	return l.admitAgain(did.Next, every), nil
}

// admitAgain returns the pause until the next round: until the next task is due, but at most every. If next is
// negative, no task waits. After tasks became available, and while a transaction holds due tasks, it is at least
// admitApart.
func (l *Leader) admitAgain(next, every time.Duration) time.Duration {
	if l.dueAt = (time.Time{}); next < 0 {
		return every
	}
	l.dueAt = time.Now().Add(next)
	if next == 0 {
		return admitApart
	}
	return min(max(next, time.Until(l.admitted.Add(admitApart))), every)
}

const (
	maintainEvery = 5 * time.Second
	maintainRests = 11 // rounds in a row that are skipped while tasks neither come nor end
)

// maintain does the engine's own housekeeping. If no task was stored or ended since the last time, it does so only
// once a minute.
func (l *Leader) maintain(ctx context.Context, term int64) (time.Duration, error) {
	moved := l.lately(term).Moved
	if moved != 0 && moved == l.kept.moved && l.kept.rests < maintainRests {
		l.kept.rests++
		return maintainEvery, nil
	}
	err := l.o.Maintain(ctx, term)
	if l.kept = (kept{}); err == nil {
		l.kept.moved = moved
	}
	return maintainEvery, err
}

// kept is the result of the last housekeeping.
type kept struct {
	moved int64 // store.Chores.Moved at that time
	rests int   // rounds that were skipped since
}
