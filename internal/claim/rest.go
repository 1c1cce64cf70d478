package claim

import (
	"slices"
	"time"
)

// A source that finds nothing need not poll while somebody who asks the store for something
// else finds out with the same question that there is nothing.

// Idles reports whether it polls in vain.
func (c *Source) Idles() bool { return c.resting.Load() }

// Rests returns the queues of which a look may stand for a poll: a source that polls in vain
// has some, unless they are many.
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

// Looked tells what a look found in the queues that Rests had returned when it began, and after what
// pause the next one comes.
func (c *Source) Looked(began time.Time, found []string, pause time.Duration) {
	if len(found) > 0 {
		c.Hint(found...)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.vain = began.Add(pause + pause/8)
}

// spared is how long the next poll may still wait because of the last look: until a little after the
// next one, so that that comes first.
func (c *Source) spared() time.Duration {
	if !c.resting.Load() || len(c.round) > 0 || c.unanswered != nil || !c.hints.silent() {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Until(c.vain)
}
