package finish

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// write repeats until the batch is stored. It sets aside the outcomes that a store.HeldError names. It halves a batch
// that keeps failing, down to single outcomes, and sets aside an outcome that fails alone. So an outcome that no
// store accepts does not delay others. After each success it writes twice as many together.
func (g *Gatherer) write(ctx context.Context, b batch) {
	pause, size := firstPause, len(b.outcomes)
	for failures := 0; len(b.outcomes) > 0 && ctx.Err() == nil; {
		part := b.first(size)
		part.stamp(time.Now())
		lost, err := g.try(ctx, part.outcomes, g.deadline)
		held := new(store.HeldError)
		if err == nil || errors.As(err, &held) {
			g.success.Store(time.Now().UnixNano())
			b = b.after(part)
			g.done(g.withoutHeld(part, held.Tasks, err), set(lost))
			pause, failures, size = firstPause, 0, min(2*size, len(b.outcomes))
			continue
		}
		failures++
		g.warn(err, "outcomes", len(part.outcomes), "failures", failures, "retry_in", pause)
		if len(part.outcomes) == 1 && failures > 1 {
			now := time.Now()
			g.setAside(&aside{part.outcomes[0], part.ended[0], now, now, longestPause, 1, false})
			b, failures = b.after(part), 0
		} else if failures > 1 {
			size = max(size/2, 1)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, 5*time.Second)
	}
}

const firstPause = 20 * time.Millisecond

// warnEvery is the shortest time between two lines about outcomes that are not stored. While the database is
// unreachable, each attempt that ends would write some.
const warnEvery = 10 * time.Second

func (g *Gatherer) warn(err error, details ...any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Since(g.warned) < warnEvery {
		g.unlogged++
		return
	}
	g.log.Warn("finish", append([]any{"error", err, "failures_not_logged", g.unlogged}, details...)...)
	g.warned, g.unlogged = time.Now(), 0
}

func (g *Gatherer) try(
	ctx context.Context, outcomes []store.Outcome, within time.Duration,
) (lost []store.ID, err error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return g.store.Finish(ctx, outcomes)
}

func set(ids []store.ID) map[store.ID]bool {
	if len(ids) == 0 {
		return nil
	}
	members := make(map[store.ID]bool, len(ids))
	for _, id := range ids {
		members[id] = true
	}
	return members
}
