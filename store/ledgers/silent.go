package ledgers

import (
	"context"
	"errors"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// A server may fall silent while it is asked for tasks. After a second, the claim goes on with the ledgers of other
// servers, and returns what they have. The call is late then. It is not cancelled, because that would cut the
// connection of a server that is only slow. If it gets tasks in the end, they are handed back at once: the worker has
// been told that the claim was answered, and does not know of them.
//
// From a ledger that is always slow, this process would only ever hand back. So a call may be late only if the call
// of that ledger before it was prompt. Otherwise the claim waits for it.

const (
	prompt     = suspectAfter / 2 // how fast a ledger has to answer so that claims need not wait for its next answer
	lateWithin = 15 * time.Second // the limit for a late answer
)

// claiming is a claim in progress.
type claiming struct {
	s        *Store
	r        store.ClaimRequest
	enough   bool // it ends once it has as many tasks as were asked for
	tasks    []store.Task
	answered bool // by a ledger, maybe without tasks, or one of them does not know the worker
	told     bool // by a ledger
	dead     error
	err      error
}

func (c *claiming) isOver() bool { return c.dead != nil || c.enough && len(c.tasks) >= c.r.Limit }

// request is the part of a claim that one ledger is asked for.
type request struct {
	l     *ledger
	at    *server
	r     store.ClaimRequest
	heard uint64 // how often this process had heard of tasks in the ledger before
	tasks []store.Task
	err   error
	over  chan struct{}      // closed when tasks and err are valid
	end   context.CancelFunc // cancels the call
	keep  func() bool        // makes the call go on after the end of the caller's context

	settled chan struct{} // of a late call: closed when its tasks are taken or handed back
}

func (c *claiming) request(l *ledger, at *server) *request {
	one := &request{l: l, at: at, r: c.r, heard: c.s.turns.heard[l.no].Load()}
	if c.enough {
		one.r.Limit -= len(c.tasks)
	}
	return one
}

func (one *request) ask(ctx context.Context) {
	began := time.Now()
	one.tasks, one.err = ask(ctx, one.l, func(ctx context.Context, e *postgres.Store) ([]store.Task, error) {
		return e.Claim(ctx, one.r)
	})
	one.l.prompt.Store(one.err == nil && time.Since(began) < prompt)
}

// ask asks a ledger, and waits for the answer.
func (c *claiming) ask(ctx context.Context, l *ledger, at *server) {
	if !c.meets(ctx, l) {
		return
	}
	one := c.request(l, at)
	one.ask(ctx)
	c.take(one)
}

// askBriefly is ask that does not wait for a late answer. It returns the call if that is late, else nil.
func (c *claiming) askBriefly(ctx context.Context, l *ledger, at *server) (late *request) {
	if !c.meets(ctx, l) {
		return nil
	}
	one := c.request(l, at)
	within, cancel := context.WithCancel(context.WithoutCancel(ctx))
	one.over, one.end, one.keep = make(chan struct{}), cancel, context.AfterFunc(ctx, cancel)
	started := c.s.start(func() {
		defer close(one.over)
		defer cancel()
		defer one.keep()
		one.ask(within)
	})
	if !started { // the store is closed
		cancel()
		c.err = errors.Join(c.err, store.ErrUnavailable)
		return nil
	}
	wait := time.NewTimer(suspectAfter)
	defer wait.Stop()
	select {
	case <-one.over:
		c.take(one)
		return nil
	case <-wait.C:
		one.settled = make(chan struct{})
		at.debt.add(one)
		for _, other := range *c.s.all.Load() { // if the server is gone, all its ledgers are away at the same time
			if on, _ := other.whereabouts(); on == at {
				other.suspect()
			}
		}
		return one
	}
}

// meets reports whether the ledger knows the worker. If it does not, it has nothing for the worker.
func (c *claiming) meets(ctx context.Context, l *ledger) bool {
	met := c.s.meets(ctx, l, c.r.Worker)
	c.answered = c.answered || !met
	return met
}

// await waits for a late call.
func (c *claiming) await(late *request) {
	<-late.over
	c.take(late)
	c.s.settle(late)
}

// take notes the answer of a ledger.
func (c *claiming) take(one *request) {
	c.s.claimed(one.l, one.r, one.heard, one.tasks, one.err)
	switch {
	case errors.Is(one.err, store.ErrWorkerDead):
		c.dead = one.err
	case one.err != nil:
		c.err = errors.Join(c.err, one.err)
	default:
		c.answered, c.told = true, true
		if c.tasks == nil {
			c.tasks = one.tasks
		} else {
			c.tasks = append(c.tasks, one.tasks...)
		}
	}
}

// fits reports whether a late answer has come, and the claim has room for its tasks.
func (c *claiming) fits(late *request) bool {
	select {
	case <-late.over:
		return c.dead == nil && len(c.tasks)+len(late.tasks) <= c.r.Limit
	default:
		return false
	}
}

// handBack hands back what a late call gets. If that fails, the tasks come back as strays.
func (s *Store) handBack(late *request) {
	s.leases.lose(late.r.Worker, late.r.Token, late.l.no)
	late.at.debt.passOver(late.r.Queues)
	late.keep()
	s.start(func() {
		defer time.AfterFunc(lateWithin, late.end).Stop()
		<-late.over
		defer s.settle(late)
		if late.err != nil || len(late.tasks) == 0 {
			return
		}
		back := make([]store.Outcome, len(late.tasks))
		for i := range late.tasks {
			t := &late.tasks[i]
			back[i] = store.Outcome{Task: t, State: store.Available, Attempt: t.Attempt - 1, Crashes: t.Crashes}
		}
		_, err := finishAt(s.life, late.l, back)
		s.turns.heat(late.l.no, err == nil)
	})
}
