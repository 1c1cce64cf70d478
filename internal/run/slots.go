package run

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// ErrTimeout is the cause of a context whose attempt took longer than it may.
var ErrTimeout = errors.New("timed out")

// Result is how a handler call ended.
type Result struct {
	Err   error
	Trace string
	Ran   time.Duration
}

// Slots runs attempts, as many at a time as it has slots, and knows all that the
// worker holds: those that run and those read ahead.
type Slots struct {
	// Handle runs the handler of an attempt. Its error is the attempt's.
	Handle func(ctx context.Context, a *Attempt) error
	// Timeout returns how long an attempt may take; 0: as long as it likes.
	Timeout func(a *Attempt) time.Duration
	// Done takes the end of an attempt.
	Done func(a *Attempt, r Result)

	queue   chan *Attempt
	slots   sync.WaitGroup
	mu      sync.Mutex
	held    map[heldKey]*Attempt
	count   atomic.Int64 // of held
	running atomic.Int64
	mean    atomic.Int64 // nanoseconds: a moving average of run times; 0: nothing ran yet
}

type heldKey struct {
	id    store.ID
	lease store.Token
}

// NewSlots makes slots that can hold up to capacity tasks.
func NewSlots(capacity int) *Slots {
	return &Slots{queue: make(chan *Attempt, capacity), held: make(map[heldKey]*Attempt)}
}

// Start starts n slots. The context is the parent of every handler's.
func (s *Slots) Start(ctx context.Context, n int) {
	for range n {
		s.slots.Add(1)
		go s.slot(ctx)
	}
}

// Take adds claimed tasks. It must not be given more than there is room for.
func (s *Slots) Take(tasks []store.Task) {
	attempts := make([]Attempt, len(tasks))
	batch := new(atomic.Int64)
	batch.Store(int64(len(tasks)))
	s.mu.Lock()
	for i := range tasks {
		attempts[i].Task, attempts[i].batch = &tasks[i], batch
		s.held[heldKey{tasks[i].ID, tasks[i].Lease}] = &attempts[i]
	}
	s.mu.Unlock()
	s.count.Add(int64(len(tasks)))
	for i := range attempts {
		s.queue <- &attempts[i]
	}
}

// Close says that no more tasks come; Wait waits until the slots are empty.
func (s *Slots) Close() { close(s.queue) }

// Wait waits until all attempts have ended. Close comes first.
func (s *Slots) Wait() { s.slots.Wait() }

// Held is the number of tasks that have no outcome yet.
func (s *Slots) Held() int { return int(s.count.Load()) }

// Running is the number of handlers at work.
func (s *Slots) Running() int { return int(s.running.Load()) }

// Mean is about how long handlers take lately; 0 when none has run yet.
func (s *Slots) Mean() time.Duration { return time.Duration(s.mean.Load()) }

// Find returns the attempt of a task under a lease, or nil.
func (s *Slots) Find(id store.ID, lease store.Token) *Attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held[heldKey{id, lease}]
}

// All returns every attempt held.
func (s *Slots) All() []*Attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*Attempt, 0, len(s.held))
	for _, a := range s.held {
		all = append(all, a)
	}
	return all
}

// slot runs attempts one after another. A handler that leaves its goroutine by
// runtime.Goexit takes the slot with it, so that a new one starts in its place.
func (s *Slots) slot(ctx context.Context) {
	drained := false
	defer func() {
		if drained {
			s.slots.Done()
		} else {
			go s.slot(ctx)
		}
	}()
	for a := range s.queue {
		s.attempt(ctx, a)
	}
	drained = true
}

func (s *Slots) attempt(ctx context.Context, a *Attempt) {
	s.running.Add(1)
	var r Result
	started := time.Now()
	returned := false
	defer func() {
		r.Ran = time.Since(started)
		if !returned {
			r.Trace, r.Err = abnormalEnd(recover())
		}
		s.running.Add(-1)
		s.learn(r.Ran)
		s.release(a)
		s.Done(a, r)
	}()
	r.Err = s.call(ctx, a)
	returned = true
}

func (s *Slots) call(ctx context.Context, a *Attempt) error {
	ctx, err := a.begin(ctx)
	if err != nil {
		return err
	}
	defer a.cancel(nil)
	if limit := s.Timeout(a); limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w after %v", ErrTimeout, limit))
		defer cancel()
	}
	err = s.Handle(ctx, a)
	if err != nil && errors.Is(context.Cause(ctx), ErrTimeout) && errors.Is(err, ctx.Err()) {
		return context.Cause(ctx)
	}
	return err
}

// abnormalEnd turns a panic, or a Goexit where nothing was recovered, into a failure.
func abnormalEnd(recovered any) (trace string, err error) {
	if recovered == nil {
		return "", errors.New("handler left by runtime.Goexit")
	}
	return string(debug.Stack()), fmt.Errorf("panic: %v", recovered)
}

func (s *Slots) release(a *Attempt) {
	s.mu.Lock()
	delete(s.held, heldKey{a.Task.ID, a.Task.Lease})
	s.mu.Unlock()
	s.count.Add(-1)
	a.batch.Add(-1)
}

func (s *Slots) learn(ran time.Duration) {
	mean := s.mean.Load()
	if mean == 0 {
		mean = int64(ran)
	}
	s.mean.Store(max(mean+(int64(ran)-mean)/8, 1))
}
