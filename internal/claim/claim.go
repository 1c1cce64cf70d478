// Package claim decides when to claim and how many tasks: it polls, wakes on hints, and never sleeps while tasks wait
// and there is room for them.
//
// It may use only a store's Claim, Exchange and Park. It passes claimed tasks on to package run.
package claim

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tuskqueue/tusk/internal/loop"
	"github.com/tuskqueue/tusk/store"
)

// Claimer is the part of a store that a Source needs.
type Claimer interface {
	Claim(ctx context.Context, r store.ClaimRequest) ([]store.Task, error)
}

// Lender lends outcomes. A claim may take one of them along to the store.
type Lender interface {
	Lend() *store.Outcome // nil if none is ready
	Settle(lost bool, err error)
}

// Options configure a Source. All are required unless their comment says otherwise.
type Options struct {
	Worker func() (id store.ID, alive bool)
	Dead   func(id store.ID) // called when the store reports that the worker is dead
	Asks   func() []Ask      // what to claim from
	// Room returns how many tasks could be taken now and, if none, when to ask again at the latest.
	Room func() (n int, after time.Duration)
	// Take takes the tasks of a claim that was sent at asked.
	Take func(tasks []store.Task, asked time.Time)
	// Running returns how many tasks the worker runs, for the store. It may be nil.
	Running func() int
	Poll    time.Duration   // the longest pause between polls of idle queues
	Every   time.Duration   // the shortest time between two claims if the first did not fill the room
	Prompt  func() bool     // whether hints come as soon as tasks do; nil means no
	Along   store.Exchanger // takes outcomes along; nil if the engine does not support that
	Lender  Lender          // unused without Along
	Parker  store.Parker    // nil if the engine does not lease tasks as it stores them
	// Ready reports whether the worker could run a task of a queue at once. It is unused without Parker.
	Ready func(queue string) bool
	Log   *slog.Logger
}

// Ask is a set of queues that are claimed from together.
type Ask struct {
	Queues []string
	// The maximum number of tasks to take from them; 0 means as many as there is room for.
	Most int
}

// Source claims. Make it with New, then run its Loop.
type Source struct {
	store Claimer
	o     Options
	loop  *loop.Loop

	unanswered *store.ClaimRequest // a request whose answer was lost
	round      []Ask               // claims that this round must still make before a pause
	found      bool                // this round has found tasks
	idle       time.Duration       // the current pause
	short      time.Time           // when the last claim was sent that did not fill the room
	turn       int
	due        time.Time // when the next claim is due, if no hint comes before
	hints      *hints
	sated      atomic.Bool // the last round had room left, and hints are prompt
	resting    atomic.Bool // its polls find nothing, at the longest pause

	mu sync.Mutex
	// The token of the request that is in progress or unanswered; zero if there is none.
	asked  store.Token
	vain   time.Time // until then, the last look replaces polls
	parked *parked   // a claim that is left with the store; nil if none is
}

// The pause after a poll that found fewer tasks than there was room for doubles up to Poll. It starts longer if hints
// are prompt and tasks come one by one.
const (
	firstIdle   = 5 * time.Millisecond
	promptPause = 500 * time.Millisecond
	oneByOne    = 2 // a poll with at most this many tasks
)

// New makes a source.
func New(s Claimer, o Options) *Source {
	c := &Source{store: s, o: o, hints: newHints(o.Poll)}
	c.loop = loop.New("claim", 15*time.Second, o.Log, c.claim)
	return c
}

// Loop returns the loop that must run.
func (c *Source) Loop() *loop.Loop { return c.loop }

// Wake makes the source claim at once.
func (c *Source) Wake() {
	c.hints.tell()
	c.loop.Wake()
}

// Freed says that there is room again. The source claims at once, unless its last claim emptied the queues and hints
// will announce more tasks.
func (c *Source) Freed() {
	if !c.sated.Load() {
		c.Wake()
	}
}

// Hint says that the queues may have tasks or, without names, that any queue may.
func (c *Source) Hint(queues ...string) {
	c.hints.add(queues...)
	c.loop.Wake()
}

func (c *Source) claim(ctx context.Context) (time.Duration, error) {
	c.collect()
	id, alive := c.o.Worker()
	if !alive {
		return firstIdle, nil
	}
	if left := max(c.spared(), c.early(), c.undisturbed()); left > 0 {
		c.park(id)
		return left, nil
	}
	c.due = time.Time{}
	room, after := c.o.Room()
	room -= c.withdraw()
	r := c.request(id, room)
	if r.Limit <= 0 {
		c.sated.Store(false)
		for _, ask := range c.round {
			c.hints.add(ask.Queues...)
		}
		c.round = nil
		return after, nil
	}
	if len(r.Queues) == 0 {
		return c.hints.untilSweep(), nil
	}
	c.name(r.Token)
	var along errand
	asked := time.Now()
	defer along.settle()
	tasks, err := c.ask(ctx, r, &along)
	if errors.Is(err, store.ErrWorkerDead) {
		c.unanswered = nil
		c.name(store.Token{})
		c.o.Dead(id)
		return 0, nil
	}
	if err != nil {
		r.Again = true
		c.unanswered = &r
		return 0, err
	}
	c.unanswered = nil
	if r.Again && len(tasks) == 0 {
		c.hints.add(r.Queues...) // the first request got nothing, and never will
		return 0, nil
	}
	pause := c.pause(r, tasks, asked)
	// From here on, the receiver of the tasks reports the token.
	c.name(store.Token{})
	if c.due = time.Now().Add(pause); pause > 0 {
		c.park(id)
	}
	return pause, nil
}

func (c *Source) name(token store.Token) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = token
}

// Asked returns the tokens of the requests that are in progress, or that may have claimed tasks.
func (c *Source) Asked() (tokens []store.Token) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked != (store.Token{}) {
		tokens = append(tokens, c.asked)
	}
	if c.parked != nil && !c.parked.used.IsZero() {
		tokens = append(tokens, c.parked.request.Token)
	}
	return tokens
}

// ask claims. A claim of one task takes along an outcome if one is ready, that of the previous task.
func (c *Source) ask(ctx context.Context, r store.ClaimRequest, along *errand) ([]store.Task, error) {
	if r.Limit > 1 || r.Again || c.o.Along == nil {
		return c.store.Claim(ctx, r)
	}
	o := c.o.Lender.Lend()
	if o == nil {
		return c.store.Claim(ctx, r)
	}
	*along = errand{lender: c.o.Lender, err: errUnanswered}
	x := c.o.Along.Exchange(ctx, *o, r)
	along.lost, along.err = x.Lost, x.FinishErr
	return x.Tasks, x.ClaimErr
}

// errand is an outcome that was lent, and its result.
type errand struct {
	lender Lender // nil if nothing was lent
	lost   bool
	err    error
}

// errUnanswered is the result of an errand without an answer.
var errUnanswered = errors.New("no answer")

func (e *errand) settle() {
	if e.lender != nil {
		e.lender.Settle(e.lost, e.err)
	}
}

// request repeats a claim whose answer was lost, or else makes a new one. Queues take turns at being first, and so do
// asks.
func (c *Source) request(id store.ID, room int) store.ClaimRequest {
	if c.unanswered != nil && c.unanswered.Worker == id {
		return *c.unanswered
	}
	r := store.ClaimRequest{Worker: id, Limit: room, Token: store.NewToken()}
	if len(c.round) == 0 && r.Limit > 0 {
		c.turn++
		c.round, c.found = c.hints.choose(rotated(c.o.Asks(), c.turn)), false
	}
	if len(c.round) == 0 || r.Limit <= 0 {
		return r
	}
	ask := c.round[0]
	c.round = c.round[1:]
	r.Queues = rotated(ask.Queues, c.turn)
	if c.o.Running != nil {
		r.Running = c.o.Running()
	}
	if ask.Most > 0 {
		r.Limit = min(r.Limit, ask.Most)
	}
	return r
}

func rotated[T any](all []T, by int) []T {
	if len(all) < 2 {
		return all
	}
	by %= len(all)
	return append(append(make([]T, 0, len(all)), all[by:]...), all[:by]...)
}

func (c *Source) pause(r store.ClaimRequest, tasks []store.Task, asked time.Time) time.Duration {
	more := c.hints.learn(r, tasks)
	if len(tasks) > 0 {
		c.found = true
		c.o.Take(tasks, asked)
	}
	if len(c.round) > 0 || len(tasks) == r.Limit {
		c.sated.Store(false)
		return 0
	}
	c.short = asked
	if c.found {
		c.idle = 0
	}
	first, prompt := firstIdle, len(tasks) <= oneByOne && c.o.Prompt != nil && c.o.Prompt()
	if prompt {
		first = promptPause
	}
	c.sated.Store(prompt)
	c.idle = min(max(2*c.idle, first), c.o.Poll)
	c.resting.Store(c.idle == c.o.Poll)
	pause := c.idle - rand.N(c.idle/4+1)
	if !more && !isFew(c.o.Asks()) {
		return max(pause, c.hints.untilSweep())
	}
	return pause
}

// Settle repeats a claim whose answer was lost, after the loop has stopped, so that no task stays leased to a worker
// that does not know about it. It repeats the claim until it is answered or the context ends.
func (c *Source) Settle(ctx context.Context) error {
	if err := c.unpark(ctx); err != nil {
		return err
	}
	err := c.repeatLost(ctx)
	c.collect() // its answer may have been lost as well
	return errors.Join(err, c.repeatLost(ctx))
}

func (c *Source) repeatLost(ctx context.Context) error {
	for c.unanswered != nil {
		_, err := c.claim(ctx)
		if err == nil {
			break
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(settleEvery):
		}
	}
	return nil
}

const settleEvery = 100 * time.Millisecond
