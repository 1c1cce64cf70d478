package finish

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// aside is an outcome that could not be written: a user's transaction holds what it needs, or it failed while others
// were stored. From then on it is retried alone, apart from the batches, so that it does not delay others.
type aside struct {
	store.Outcome
	ended    time.Time     // when its attempt ended
	since    time.Time     // when it was set aside
	tried    time.Time     // when it was last tried
	pause    time.Duration // until the next try
	failures int           // not counting tries for which it was held
	held     bool          // it was set aside only for that reason
}

const (
	// aloneDeadline limits one try of a single outcome.
	aloneDeadline = 5 * time.Second
	// longestPause is the longest pause between two tries of one outcome, and closingPause the longest after Close.
	longestPause = time.Second
	closingPause = 100 * time.Millisecond
	// blamedAfter is longer than a server takes to restart.
	blamedAfter = 30 * time.Second
)

// unstorable is the fingerprint of outcomes that no store accepts.
const unstorable = "unstorable"

// setAside keeps an outcome for a later try.
func (g *Gatherer) setAside(a *aside) {
	g.mu.Lock()
	g.aside = append(g.aside, a)
	g.mu.Unlock()
	select {
	case g.later <- struct{}{}:
	default:
	}
}

// withoutHeld sets aside the outcomes that a store.HeldError in err names, and returns the others.
func (g *Gatherer) withoutHeld(part batch, held []store.ID, err error) []store.Outcome {
	if len(held) == 0 {
		return part.outcomes
	}
	level, only := slog.LevelWarn, store.OnlyHeld(err)
	if only {
		level = slog.LevelInfo
	}
	g.log.Log(context.Background(), level, "finish: outcomes that were not written are tried alone from now on", "error",
		err, "outcomes", len(held), "task", held[0])
	now, all, rest := time.Now(), set(held), make([]store.Outcome, 0, len(part.outcomes)) // others read the batch
	for i, o := range part.outcomes {
		if all[o.Task.ID] {
			g.setAside(&aside{o, part.ended[i], now, now, firstPause, 0, only})
		} else {
			rest = append(rest, o)
		}
	}
	return rest
}

// retry retries the outcomes that are set aside, each alone, until no batches are left to write and no outcome is set
// aside.
func (g *Gatherer) retry(ctx context.Context, written <-chan struct{}) {
	for closing := false; ctx.Err() == nil; {
		a, wait := g.nextAside(time.Now(), closing)
		if a != nil {
			g.tryAlone(ctx, a)
			continue
		}
		if closing && wait == 0 {
			return
		}
		var due <-chan time.Time
		if wait > 0 {
			due = time.After(wait)
		}
		select {
		case <-ctx.Done():
		case <-g.later:
		case <-due:
		case <-written:
			closing, written = true, nil
		}
	}
}

// nextAside returns the outcome that is most overdue. If none is due, wait is the time until the next one is, or 0 if
// none is set aside.
func (g *Gatherer) nextAside(now time.Time, closing bool) (a *aside, wait time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	next := -1
	for i, a := range g.aside {
		pause := a.pause
		if closing {
			pause = min(pause, closingPause)
		}
		if left := a.tried.Add(pause).Sub(now); next < 0 || left < wait {
			next, wait = i, left
		}
	}
	if next < 0 {
		return nil, 0
	}
	if wait > 0 {
		return nil, wait
	}
	return g.aside[next], 0
}

// tryAlone writes one outcome, which stays set aside until it is stored.
func (g *Gatherer) tryAlone(ctx context.Context, a *aside) {
	a.Ago = time.Since(a.ended)
	one := []store.Outcome{a.Outcome}
	lost, err := g.try(ctx, one, min(g.deadline, aloneDeadline))
	if err == nil {
		g.success.Store(time.Now().UnixNano())
		g.mu.Lock()
		g.aside = slices.DeleteFunc(g.aside, func(other *aside) bool { return other == a })
		g.mu.Unlock()
		g.done(one, set(lost))
		return
	}
	if a.pause = min(2*a.pause, longestPause); !isHeld(err) {
		a.pause = longestPause
		g.blame(a, err)
	}
	a.tried = time.Now()
}

// blame counts a failure. If an outcome has failed for blamedAfter while others were stored, the outcome itself is
// taken to be at fault, unless the database, or the part with its task, was unreachable, busy, full or read-only.
// Then only the end of the attempt is stored, as a discarded task with that reason.
func (g *Gatherer) blame(a *aside, err error) {
	a.failures++
	g.warn(err, "task", a.Task.ID, "failures", a.failures, "retry_in", a.pause)
	blameless := store.IsForAll(err) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
	if a.failures < 3 || time.Since(a.since) < blamedAfter || blameless || a.Fingerprint == unstorable {
		return
	}
	// Nothing else was stored either, so the outcome is not to blame.
	if g.success.Load() <= a.since.UnixNano() {
		a.failures, a.since = 0, time.Now()
		return
	}
	g.log.Error("finish: the outcome cannot be stored, discarding the task instead", "task", a.Task.ID, "error", err)
	a.State, a.Delay, a.Note, a.Trace, a.Then, a.Needs = store.Discarded, 0, nil, "", nil, nil
	a.Reason = "its outcome could not be stored"
	a.Error, a.Fingerprint = "outcome could not be stored", unstorable
}

func isHeld(err error) bool {
	held := new(store.HeldError)
	return errors.As(err, &held)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
