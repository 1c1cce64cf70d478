package tend

import (
	"context"
	"time"
)

const (
	admitBatch = 5000
	// admitEvery bounds how late a task can become available that was enqueued
	// with a short delay after the last look, and admitSeldom does so after admitQuiet in
	// which none became available.
	admitEvery  = 200 * time.Millisecond
	admitSeldom = 500 * time.Millisecond
	admitQuiet  = 10 * time.Second
	// admitRests bounds it where the engine tells of such tasks at once: then only those are late of which nobody heard.
	admitRests = time.Second
	// admitApart is how long tasks that are due wait for others once some became available: a look costs far more than
	// a task in it.
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
		if c, err := l.oversee(ctx, term); err == nil && c.Admit != 0 { // after an error Admit says what is wrong, or works
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
		l.turnCalls.hear(l.turnCalls.apart) // what was due may be in line for its turn now
	}
	return l.admitAgain(did.Next, every), nil
}

// admitAgain is when to look again: when the next task is due, but within a time, and not at once after some became
// available, or though they are due and held by somebody; negative: none waits.
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
	maintainRests = 11 // rounds in a row that are left out while tasks neither come nor end
)

// maintain does the engine's own housekeeping. Where no task has come or ended since, it does so once a minute.
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

// kept is what the last housekeeping found.
type kept struct {
	moved int64 // as store.Chores have it
	rests int   // rounds that were left out since
}
