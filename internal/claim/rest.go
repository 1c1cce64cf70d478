package claim

import (
	"slices"
	"time"
)

// A source that finds nothing need not poll while somebody who asks the store for something
// else finds out with the same question that there is nothing.

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

// Looked tells what a look found in the queues that Rests had returned when it began.
func (c *Source) Looked(began time.Time, found []string) {
	if len(found) > 0 {
		c.Hint(found...)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looked = began
}

// spared is how long the next poll may still wait because of the last look. It is a little
// longer than Poll, so that the next look comes first.
func (c *Source) spared() time.Duration {
	if !c.resting.Load() || len(c.round) > 0 || c.unanswered != nil || !c.hints.silent() {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Until(c.looked.Add(c.o.Poll + c.o.Poll/8))
}
