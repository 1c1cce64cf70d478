package ledgers

import (
	"context"
	"errors"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// A server may fall silent during a claim. After a second, the claim continues with the ledgers of other servers and
// returns their tasks. The unanswered call is then late. It is not cancelled, because that would close the connection
// to a server that may only be slow. If it gets tasks after all, they are handed back at once, because the worker does
// not know of them.
//
// From a server that is always slow, this process would only ever hand tasks back. So a call may become late only if
// the ledger's previous answer was prompt. Otherwise the claim waits.

const (
	prompt     = suspectAfter / 2 // an answer within this time allows the next one to be late
	lateWithin = 15 * time.Second // timeout of a late call
)

// claiming is a claim in progress.
type claiming struct {
	s        *Store
	r        store.ClaimRequest
	enough   bool // stop when the limit is reached
	tasks    []store.Task
	answered bool // a ledger answered, or does not know the worker
	told     bool // a ledger answered
	dead     error
	err      error
}

func (c *claiming) isOver() bool { return c.dead != nil || c.enough && len(c.tasks) >= c.r.Limit }

// request is a claim from one ledger.
type request struct {
	l     *ledger
	at    *server
	r     store.ClaimRequest
	heard uint64 // value of turns.heard before the call
	tasks []store.Task
	err   error
	over  chan struct{}      // closed when tasks and err are set
	end   context.CancelFunc // cancels the call
	keep  func() bool        // detaches the call from the caller's context

	settled chan struct{} // closed when a late call's tasks have been taken or handed back
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

// ask claims from a ledger and waits for the answer.
func (c *claiming) ask(ctx context.Context, l *ledger, at *server) {
	if !c.meets(ctx, l) {
		return
	}
	one := c.request(l, at)
	one.ask(ctx)
	c.take(one)
}

// askBriefly is ask that stops waiting after a second. It returns the call if it is late, and nil otherwise.
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
		for _, other := range *c.s.all.Load() { // so that all ledgers of a dead server go away together
			if on, _ := other.whereabouts(); on == at {
				other.suspect()
			}
		}
		return one
	}
}

// meets reports whether the ledger knows the worker. Otherwise the ledger has no tasks for it.
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

// take adds the answer of a ledger to the claim.
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

// fits reports whether a late call has been answered and the claim has room for its tasks.
func (c *claiming) fits(late *request) bool {
	select {
	case <-late.over:
		return c.dead == nil && len(c.tasks)+len(late.tasks) <= c.r.Limit
	default:
		return false
	}
}

// handBack hands back the tasks of a late call. If it fails, they return to the queue as strays.
func (s *Store) handBack(late *request) {
	s.leases.lose(late.r.Worker, late.r.Token, late.l.no)
	late.at.debt.passOver(late.l, late.r.Queues)
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
		within, cancel := context.WithTimeout(s.life, followUpWithin)
		defer cancel()
		_, err := finishAt(within, late.l, back)
		s.turns.heat(late.l.no, err == nil)
	})
}
