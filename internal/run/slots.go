package run

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tuskqueue/tusk/internal/gate"
	"github.com/tuskqueue/tusk/store"
)

// ErrTimeout is the cause of a context whose attempt has reached its time limit.
var ErrTimeout = errors.New("timed out")

// Result is how a handler call ended.
type Result struct {
	Err     error
	Trace   string
	Ran     time.Duration
	Ended   time.Time
	Hung    bool // the handler ignores the end of its context and is still running
	Counted bool // it is the first attempt of its call that hangs
}

// Slots runs attempts, as many at a time as it has slots. It holds all tasks of the worker: those that run and those
// that wait for a slot.
type Slots struct {
	// Claimed is called with the tasks of a claim before they run. It returns the parent of their
	// handlers' contexts, and whether their attempts are traced. If Claimed is nil, the parent is
	// the context given to Start, and no attempt is traced.
	Claimed func(ctx context.Context, tasks []store.Task, asked time.Time) (context.Context, bool)
	// Handle runs the handler of an attempt. Its error becomes the attempt's error.
	Handle func(ctx context.Context, a *Attempt) error
	// Limits returns the limits of an attempt that begins now.
	Limits func(a *Attempt) Limits
	// Note is called when an attempt has recorded something that its handler waits to be stored.
	Note func()
	// Grace is how long a handler may still run after its context ended at a limit or by Cancel. After that the
	// attempt is abandoned.
	Grace time.Duration
	// Alone reports whether an attempt has to wait, for up to alonePatience, until no other such attempt runs. If
	// Alone is nil, no attempt waits.
	Alone func(a *Attempt) bool
	// Done is called when an attempt has ended.
	Done func(a *Attempt, r Result)
	// Late is called when an abandoned handler returns after all.
	Late func(a *Attempt, r Result)

	ctx    context.Context // the context given to Start
	alone  gate.Gate       // held by the attempt for which Alone is true
	hung   atomic.Int64
	stacks stacks

	queue   chan *Attempt
	slots   sync.WaitGroup
	mu      sync.Mutex
	held    map[*claimed]struct{}
	refused error        // why no attempt may begin any more; nil if they may
	count   atomic.Int64 // attempts in held that have not ended
	running atomic.Int64
	begun   time.Time    // the zero of taken; monotonic, so that setting the clock does not matter
	taken   atomic.Int64 // nanoseconds since begun when tasks were last added
	mean    atomic.Int64 // nanoseconds: a moving average of run times; 0 if nothing has run yet
}

// claimed holds the attempts of one claim.
type claimed struct {
	attempts []Attempt
	open     atomic.Int64 // number of attempts that have not been passed to Done
	left     atomic.Int64 // see Attempt.Left
	at       time.Time
	ctx      context.Context
	followed bool
	note     func() // see Slots.Note
}

// NewSlots returns slots that can hold up to capacity tasks.
func NewSlots(capacity int) *Slots {
	return &Slots{queue: make(chan *Attempt, capacity), held: make(map[*claimed]struct{}), begun: time.Now(),
		alone: gate.New()}
}

// Start starts n slots. The context is the parent of every handler's context.
func (s *Slots) Start(ctx context.Context, n int) {
	s.ctx = ctx
	for range n {
		s.slots.Add(1)
		go s.slot()
	}
}

// Take adds the tasks of a claim that was requested at the time asked. There must be room for all
// of them.
func (s *Slots) Take(tasks []store.Task, asked time.Time) {
	c := &claimed{attempts: make([]Attempt, len(tasks)), at: time.Now(), ctx: s.ctx, note: s.Note}
	if s.Claimed != nil {
		c.ctx, c.followed = s.Claimed(s.ctx, tasks, asked)
	}
	c.open.Store(int64(len(tasks)))
	c.left.Store(int64(len(tasks)))
	for i := range tasks {
		c.attempts[i].Task, c.attempts[i].claim = &tasks[i], c
	}
	s.mu.Lock()
	s.held[c] = struct{}{}
	for i := range c.attempts {
		c.attempts[i].stopped = s.refused
	}
	s.mu.Unlock()
	s.count.Add(int64(len(tasks)))
	s.taken.Store(int64(time.Since(s.begun)))
	for i := range c.attempts {
		s.queue <- &c.attempts[i]
	}
}

// Refuse stops all attempts that have not begun, and all that are added later.
func (s *Slots) Refuse(cause error) {
	s.mu.Lock()
	s.refused = cause
	s.mu.Unlock()
	for _, a := range s.All() {
		a.stopWaiting(cause)
	}
}

// Refuses reports whether attempts that are added now are stopped at once.
func (s *Slots) Refuses() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused != nil
}

// Close says that no more tasks will be added.
func (s *Slots) Close() { close(s.queue) }

// Wait waits until all attempts have ended. Call Close first.
func (s *Slots) Wait() { s.slots.Wait() }

// Held returns the number of attempts that have not ended.
func (s *Slots) Held() int { return int(s.count.Load()) }

// HeldOf returns the number of attempts of a queue that have not ended.
func (s *Slots) HeldOf(queue string) (n int) {
	for _, a := range s.All() {
		if a.Task.Queue == queue {
			n++
		}
	}
	return n
}

// Taken returns how long ago tasks were last added.
func (s *Slots) Taken() time.Duration { return time.Since(s.begun) - time.Duration(s.taken.Load()) }

// Running returns the number of running handlers.
func (s *Slots) Running() int { return int(s.running.Load()) }

// Mean returns the approximate recent run time of handlers, or 0 if none has run yet.
func (s *Slots) Mean() time.Duration { return time.Duration(s.mean.Load()) }

// Ending returns how many attempts are likely to end within the given time, judging by recent run times.
func (s *Slots) Ending(within time.Duration) int {
	mean := s.mean.Load()
	if mean == 0 {
		return 0
	}
	return int(s.running.Load() * int64(within) / mean)
}

// Find returns the attempt of a task under a lease, or nil if it is not held.
func (s *Slots) Find(id store.ID, lease store.Token) *Attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.held {
		for i := range c.attempts {
			if a := &c.attempts[i]; a.Task.ID == id && a.Task.Lease == lease && a.held() {
				return a
			}
		}
	}
	return nil
}

// All returns all attempts that have not ended.
func (s *Slots) All() []*Attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*Attempt, 0, s.Held())
	for c := range s.held {
		for i := range c.attempts {
			if c.attempts[i].held() {
				all = append(all, &c.attempts[i])
			}
		}
	}
	return all
}

// Tokens returns the leases of claims with attempts that have not been passed to Done.
func (s *Slots) Tokens() []store.Token {
	s.mu.Lock()
	defer s.mu.Unlock()
	tokens := make([]store.Token, 0, len(s.held))
	for c := range s.held {
		tokens = append(tokens, c.attempts[0].Task.Lease)
	}
	return tokens
}

// slot runs attempts one after another. A handler that ends its goroutine with runtime.Goexit also ends the slot, so
// a new slot starts in its place. When an abandoned handler returns, its slot has already been replaced.
func (s *Slots) slot() {
	id := goroutineID()
	var a *Attempt
	drained := false
	defer func() {
		switch {
		case a != nil && a.isForsaken():
		case drained:
			s.slots.Done()
		default:
			go s.slot()
		}
	}()
	for a = range s.queue {
		a.goroutine = id
		if forsaken := s.attempt(a); forsaken {
			return
		}
	}
	a, drained = nil, true
}

// attempt runs one attempt. It reports whether the attempt was abandoned before its handler returned.
func (s *Slots) attempt(a *Attempt) (forsaken bool) {
	if s.Alone != nil && s.Alone(a) && s.awaitAlone(a) {
		defer s.alone.Leave()
	}
	s.running.Add(1)
	var r Result
	started := a.Since()
	returned := false
	defer func() {
		ended := a.Since()
		r.Ended, r.Ran = a.claim.at.Add(ended), ended-started
		if !returned {
			r.Trace, r.Err = abnormalEnd(recover())
		}
		if forsaken = !a.end(); forsaken {
			s.returned(a, r)
			return
		}
		s.running.Add(-1)
		s.learn(r.Ran)
		s.count.Add(-1)
		s.Done(a, r)
		s.release(a.claim)
	}()
	r.Err = s.call(a, started)
	returned = true
	return false
}

// alonePatience is how long an attempt waits for another one that runs alone. It is short, because it occupies a slot.
const alonePatience = 10 * time.Second

// awaitAlone waits until no other attempt runs alone. It reports false if that takes too long, or if the attempt is
// stopped before it begins.
func (s *Slots) awaitAlone(a *Attempt) bool {
	ctx, cancel := context.WithTimeout(s.ctx, alonePatience)
	defer cancel()
	a.onStop(func(error) { cancel() })
	defer a.onStop(nil)
	return s.alone.Enter(ctx) == nil
}

func (s *Slots) call(a *Attempt, started time.Duration) error {
	ctx, err := a.begin(started)
	if err != nil {
		return err
	}
	limits := s.Limits(a)
	if limits.Cause != nil || limits.Stall > 0 {
		s.guard(a, limits)
	}
	if limits.Cause != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limits.Time, limits.Cause)
		defer cancel()
	}
	err = s.Handle(ctx, a)
	if err != nil && limits.Cause != nil && context.Cause(ctx) == limits.Cause && errors.Is(err, ctx.Err()) {
		return limits.Cause
	}
	return err
}

// abnormalEnd turns a panic, or a Goexit if nothing was recovered, into a failure.
func abnormalEnd(recovered any) (trace string, err error) {
	if recovered == nil {
		return "", errors.New("handler left by runtime.Goexit")
	}
	return string(debug.Stack()), fmt.Errorf("panic: %v", recovered)
}

// release forgets a claim once all of its attempts have been passed to Done.
func (s *Slots) release(c *claimed) {
	if c.open.Add(-1) == 0 {
		s.mu.Lock()
		delete(s.held, c)
		s.mu.Unlock()
	}
}

func (s *Slots) learn(ran time.Duration) {
	mean := s.mean.Load()
	if mean == 0 {
		mean = int64(ran)
	}
	s.mean.Store(max(mean+(int64(ran)-mean)/8, 1))
}
