package tend

import (
	"context"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/internal/loop"
	"github.com/tuskqueue/tusk/store"
)

const (
	hearEvery   = 10 * time.Millisecond  // a chore is woken no more often
	hearPrompt  = 5 * time.Millisecond   // or than that, where hints come at once: it looks for nothing else
	hearUnnamed = 100 * time.Millisecond // or than that, by hints that do not say what has happened
	hearSoon    = 200 * time.Millisecond // or than that, for tasks that are due after store.Promptly
)

// called is a chore that hints wake while it rests. One that looks again within apart is left alone: a queue
// in which much happens has its leader do no more for being told of it.
type called struct {
	loop  *loop.Loop
	apart time.Duration // between two looks, at least: hearEvery or hearPrompt, or admitApart

	mu    sync.Mutex
	rests bool
	told  bool        // since the look under way began
	ended time.Time   // of the last look
	next  time.Time   // when it looks because it was told
	wakes *time.Timer // then; nil: it does not
}

// hear has the chore look: now, or a while after its last look.
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

// hush takes back a wake that is to come, with the lock held.
func (c *called) hush() {
	if c.wakes != nil {
		c.wakes.Stop()
		c.wakes = nil
	}
}

// look is do, for hints to wake it; told: by one, or it may have missed one.
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

// Hear takes a hint: while this process leads, the chores that it concerns look at once.
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

// prompt reports whether hints come as soon as there is something to do.
func (l *Leader) prompt() bool { return l.o.Prompt != nil && l.o.Prompt() }
