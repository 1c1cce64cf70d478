package tend

import (
	"context"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/internal/loop"
	"github.com/tuskqueue/tusk/store"
)

const (
	hearEvery = 10 * time.Millisecond // the shortest time between two wakes of a chore
	// The same if hints come at once, so that the chore runs only because of hints.
	hearPrompt = 5 * time.Millisecond
	// The same for hints that do not say what has happened.
	hearUnnamed = 100 * time.Millisecond
	// The same for tasks that are due after store.Promptly.
	hearSoon = 200 * time.Millisecond
)

// called is a chore that hints wake while it rests. Hints do not wake a chore that runs again within apart anyway, so
// a busy queue costs its leader no extra work.
type called struct {
	loop *loop.Loop
	// The shortest time between two rounds: hearEvery, hearPrompt or admitApart.
	apart time.Duration

	mu    sync.Mutex
	rests bool
	told  bool        // since the current round began
	ended time.Time   // when the last round ended
	next  time.Time   // when a hint makes it run
	wakes *time.Timer // fires at next; nil if no wake is planned
}

// hear makes the chore run, at once or apart after its last round.
func (c *called) hear(apart time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = true
	at := c.ended.Add(apart)
	if !c.rests || c.wakes != nil && !at.Before(c.next) {
		return
	}
	c.hush()
	c.next, c.wakes = at, time.AfterFunc(time.Until(at), c.loop.Wake)
}

// hush cancels a planned wake. The caller holds the lock.
func (c *called) hush() {
	if c.wakes != nil {
		c.wakes.Stop()
		c.wakes = nil
	}
}

// look wraps do so that hints can wake it. told says whether a hint has come since the last successful round began.
func (c *called) look(
	do func(ctx context.Context, term int64, told bool) (time.Duration, error),
) func(ctx context.Context, term int64) (time.Duration, error) {
	return func(ctx context.Context, term int64) (time.Duration, error) {
		c.mu.Lock()
		told := c.told
		c.told, c.rests = false, false
		c.hush()
		c.mu.Unlock()
		pause, err := do(ctx, term, told)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.ended = time.Now()
		switch {
		case err != nil:
			c.told = c.told || told
		case c.told:
			pause = min(pause, c.apart)
		default:
			c.rests = pause > c.apart
		}
		return pause, err
	}
}

// Hear takes a hint. While this process leads, the chores that the hint concerns run at once.
func (l *Leader) Hear(h store.Hint) {
	if l.Term() == 0 {
		return
	}
	turns, due := l.turnCalls.apart, l.admitCalls.apart
	if h.Open() {
		turns, due = hearUnnamed, hearUnnamed
	}
	if h.Turns || h.Open() {
		l.turnCalls.hear(turns)
	}
	if h.Due || h.Open() {
		l.admitCalls.hear(due)
	}
	if h.Soon {
		l.admitCalls.hear(hearSoon)
	}
}

// prompt reports whether hints come as soon as there is work.
func (l *Leader) prompt() bool { return l.o.Prompt != nil && l.o.Prompt() }
