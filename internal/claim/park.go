package claim

import (
	"context"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// A source whose queues are empty leaves a claim of one task with the store. A task that this process enqueues can
// then be stored and claimed in one round trip.

// parked is a claim that is left with the store. The store may use it once.
type parked struct {
	request store.ClaimRequest
	recall  func()

	mu     sync.Mutex
	state  parking
	tasks  []store.Task
	asked  time.Time
	err    error
	answer chan struct{} // closed when the answer has come
}

type parking int

const (
	unused   parking = iota
	used             // the store uses it, and will answer
	answered         // the answer has come, but was not collected yet
	recalled
)

func (p *parked) isUsed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state == used || p.state == answered
}

// park leaves a claim with the store, unless there is one. It names the queues that may be claimed from without a
// limit, if they are few.
func (c *Source) park(id store.ID) {
	if c.o.Parker == nil || c.parked != nil && c.parked.request.Worker == id || c.withdraw() > 0 {
		return
	}
	asks := c.o.Asks()
	r := store.ClaimRequest{Worker: id, Limit: 1, Token: store.NewToken()}
	for _, a := range asks {
		if a.Most == 0 {
			r.Queues = append(r.Queues, a.Queues...)
		}
	}
	if len(r.Queues) == 0 || !isFew(asks) {
		return
	}
	if c.o.Running != nil {
		r.Running = c.o.Running()
	}
	p := &parked{request: r, answer: make(chan struct{})}
	p.recall = c.o.Parker.Park(&store.Parked{
		Request: r,
		Begin:   func(queue string) bool { return c.begin(p, queue) },
		Answer:  func(tasks []store.Task, asked time.Time, err error) { c.answered(p, tasks, asked, err) },
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.parked = p
}

func (c *Source) begin(p *parked, queue string) bool {
	id, alive := c.o.Worker()
	may := alive && id == p.request.Worker && c.o.Ready(queue)
	p.mu.Lock()
	defer p.mu.Unlock()
	if !may || p.state != unused {
		return false
	}
	p.state = used
	return true
}

func (c *Source) answered(p *parked, tasks []store.Task, asked time.Time, err error) {
	p.mu.Lock()
	p.state, p.tasks, p.asked, p.err = answered, tasks, asked, err
	p.mu.Unlock()
	close(p.answer)
	c.loop.Wake()
}

// collect takes the answer to the parked claim, if it has come. A claim whose answer was lost is repeated once no
// other claim has to be repeated.
func (c *Source) collect() {
	p := c.parked
	if p == nil {
		return
	}
	p.mu.Lock()
	has := p.state == answered
	p.mu.Unlock()
	switch {
	case !has || p.err != nil && c.unanswered != nil:
		return
	case p.err != nil:
		r := p.request
		r.Again = true
		c.unanswered = &r
		c.name(r.Token)
	case len(p.tasks) > 0:
		c.o.Take(p.tasks, p.asked)
	}
	c.forget()
}

func (c *Source) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.parked = nil
}

// withdraw takes the parked claim back. It returns 1 if the store uses that claim, so that a task may come.
func (c *Source) withdraw() int {
	p := c.parked
	if p == nil {
		return 0
	}
	p.mu.Lock()
	free := p.state == unused
	if free {
		p.state = recalled
	}
	p.mu.Unlock()
	if !free {
		return 1
	}
	p.recall()
	c.forget()
	return 0
}

// undisturbed returns how long the next claim can still wait if the loop was woken only by the answer to the parked
// claim.
func (c *Source) undisturbed() time.Duration {
	if c.o.Parker == nil || len(c.round) > 0 || c.unanswered != nil || !c.hints.silent() {
		return 0
	}
	return time.Until(c.due)
}

// unpark takes the parked claim back for good. If the store uses it, unpark waits for the answer.
func (c *Source) unpark(ctx context.Context) error {
	c.o.Parker = nil
	if c.withdraw() == 0 {
		return nil
	}
	select {
	case <-c.parked.answer:
	case <-ctx.Done():
		return ctx.Err()
	}
	c.collect()
	return nil
}
