package claim

import (
	"slices"
	"time"
)

// A source that finds nothing need not poll while another request to the store, the look, also reports whether there
// are tasks.

// Idles reports whether the source's polls find nothing.
func (c *Source) Idles() bool { return c.resting.Load() }

// Rests returns the queues for which a look can replace a poll. It returns none while polls find tasks, or if there
// are many queues.
func (c *Source) Rests() []string {
	if !c.resting.Load() {
		return nil
	}
	asks := c.o.Asks()
	if !isFew(asks) {
		return nil
	}
	var queues []string
	for _, a := range asks {
		queues = append(queues, a.Queues...)
	}
	slices.Sort(queues)
	return queues
}

// Looked passes on which of the queues that Rests returned had tasks in a look that began at began, and the pause
// before the next look.
func (c *Source) Looked(began time.Time, found []string, pause time.Duration) {
	if len(found) > 0 {
		c.Hint(found...)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.vain = began.Add(pause + pause/8)
}

// spared returns how long the next poll can still wait because of the last look: until shortly after the next look,
// which should come first.
func (c *Source) spared() time.Duration {
	if !c.resting.Load() || len(c.round) > 0 || c.unanswered != nil || !c.hints.silent() {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Until(c.vain)
}

// early returns how long the next round of claims must still wait so that tasks that arrive within Every share a
// claim. After a claim that filled the room it returns zero, because more tasks may be left.
func (c *Source) early() time.Duration {
	if len(c.round) > 0 || c.unanswered != nil || c.short.IsZero() {
		return 0
	}
	return time.Until(c.short.Add(c.o.Every))
}
