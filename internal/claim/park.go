package claim

import (
	"context"
	"errors"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// A source whose queues are empty leaves a claim of one task with the store. A task that this process enqueues can
// then be stored and claimed in one round trip.

// parkedWithin is how long the store may use a parked claim. After that its answer counts as lost, because the enqueue
// that uses it may wait for a lock of a user's transaction.
const parkedWithin = 5 * time.Second

// parked is a claim that is left with the store. The store may use it once. Source.mu protects all fields but request
// and recall.
type parked struct {
	request store.ClaimRequest
	recall  func()
	used    time.Time     // when the store began to use it; zero if it has not
	done    chan struct{} // closed when the answer has come
	tasks   []store.Task
	asked   time.Time
	err     error
}

// errNotInTime is the result of a parked claim that was used for too long.
var errNotInTime = errors.New("the enqueue that used a parked claim has not ended")

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
	p := &parked{request: r, done: make(chan struct{})}
	c.leave(p) // before the store can use it, so that its token is reported from the beginning
	p.recall = c.o.Parker.Park(&store.Parked{
		Request: r,
		Begin:   func(queue string) bool { return c.begin(p, queue) },
		Answer:  func(tasks []store.Task, asked time.Time, err error) { c.answer(p, tasks, asked, err) },
	})
}

func (c *Source) leave(p *parked) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.parked = p
}

func (c *Source) begin(p *parked, queue string) bool {
	if id, alive := c.o.Worker(); !alive || id != p.request.Worker || !c.o.Ready(queue) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.parked != p || !p.used.IsZero() {
		return false
	}
	p.used = time.Now()
	return true
}

func (c *Source) answer(p *parked, tasks []store.Task, asked time.Time, err error) {
	c.mu.Lock()
	p.tasks, p.asked, p.err = tasks, asked, err
	c.mu.Unlock()
	close(p.done)
	c.loop.Wake()
}

// collect takes the answer to the parked claim, if it has come. A claim whose answer was lost is repeated once no
// other claim has to be repeated.
func (c *Source) collect() {
	p := c.parked
	if p == nil {
		return
	}
	c.mu.Lock()
	tasks, err, used := p.tasks, p.err, p.used
	c.mu.Unlock()
	select {
	case <-p.done:
	default:
		if used.IsZero() || time.Since(used) < parkedWithin {
			return
		}
		tasks, err = nil, errNotInTime
	}
	switch {
	case err != nil && c.unanswered != nil:
		return
	case err != nil:
		r := p.request
		r.Again = true
		c.unanswered = &r
		c.name(r.Token)
	case len(tasks) > 0:
		c.o.Take(tasks, p.asked)
	}
	c.leave(nil)
}

// withdraw takes the parked claim back. It returns 1 if the store uses that claim, so that a task may come.
func (c *Source) withdraw() int {
	p := c.parked
	if p == nil {
		return 0
	}
	c.mu.Lock()
	used := !p.used.IsZero()
	if !used {
		c.parked = nil
	}
	c.mu.Unlock()
	if used {
		return 1
	}
	p.recall()
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
	case <-c.parked.done:
	case <-time.After(parkedWithin):
	case <-ctx.Done():
		return ctx.Err()
	}
	c.collect()
	return nil
}
