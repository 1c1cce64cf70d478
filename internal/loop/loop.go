// Package loop runs the loops of a worker. A loop survives every error and panic, has a deadline
// for each step, and reports how long ago a step last succeeded.
//
// It may use only timers and the log.
package loop

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// logEvery is the shortest time between two lines about failures in a row.
const logEvery = 10 * time.Second

// Loop runs a step repeatedly. Set the exported fields, then call Run once.
type Loop struct {
	Name string
	// Step does one round and returns the pause before the next one.
	Step func(ctx context.Context) (pause time.Duration, err error)
	// Deadline is the time limit of one step.
	Deadline time.Duration
	// Patience is the longest pause after failures. Pauses double from 50 ms.
	Patience time.Duration
	Log      *slog.Logger

	wake    chan struct{}
	success atomic.Int64 // Unix nanoseconds
}

// New returns a loop that can be woken before it runs.
func New(
	name string, deadline time.Duration, log *slog.Logger, step func(context.Context) (time.Duration, error),
) *Loop {
	l := &Loop{Name: name, Step: step, Deadline: deadline, Patience: 5 * time.Second, Log: log,
		wake: make(chan struct{}, 1)}
	l.success.Store(time.Now().UnixNano())
	return l
}

// Run repeats the step until stop is closed. A step that is then in progress may finish within its
// deadline, unless the context ends.
func (l *Loop) Run(ctx context.Context, stop <-chan struct{}) {
	failures, since, logged := 0, time.Time{}, time.Time{}
	for ctx.Err() == nil && !closed(stop) {
		pause, err := l.step(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if failures++; failures == 1 {
				since = time.Now()
			}
			pause = l.backoff(failures)
			if failures == 1 || time.Since(logged) >= logEvery {
				logged = time.Now()
				l.Log.Warn(l.Name, "error", err, "failures", failures, "retry_in", pause)
			}
		default:
			if failures > 1 {
				l.Log.Info(l.Name+": works again", "failures", failures, "after", time.Since(since).Round(time.Millisecond))
			}
			failures = 0
			l.success.Store(time.Now().UnixNano())
		}
		if pause <= 0 {
			continue
		}
		select {
		case <-ctx.Done():
		case <-stop:
		case <-l.wake:
		case <-time.After(pause):
		}
	}
}

// Wake makes the next step due at once. It never blocks. Several wakes before that step count as
// one.
func (l *Loop) Wake() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Age returns the time since a step last succeeded, or since the loop was created.
func (l *Loop) Age() time.Duration { return time.Since(time.Unix(0, l.success.Load())) }

func (l *Loop) step(ctx context.Context) (pause time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.Deadline)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return l.Step(ctx)
}

func closed(stop <-chan struct{}) bool {
	select {
	case <-stop:
		return true
	default:
		return false
	}
}

func (l *Loop) backoff(failures int) time.Duration {
	pause := min(50*time.Millisecond<<min(failures-1, 10), l.Patience)
	return pause/2 + rand.N(pause/2)
}
