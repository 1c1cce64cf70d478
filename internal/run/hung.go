package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"time"
)

// ErrStalled is the cause of a context whose handler gave no sign of life for too long.
var ErrStalled = errors.New("no progress")

// Limits are the limits of one attempt.
type Limits struct {
	Time  time.Duration // from now on
	Cause error         // why the context ends at that limit; nil means no limit
	Stall time.Duration // longest time without a sign of life; 0 means no limit
}

// watch is the state of an attempt that may have to be abandoned. The attempt's lock guards it.
type watch struct {
	limits Limits
	timer  *time.Timer
	began  time.Time
	alive  time.Time // the last sign of life
	told   time.Time // when the context ended; zero if it has not
	cause  error     // why it ended
}

// guard starts watching an attempt, with these limits.
func (s *Slots) guard(a *Attempt, limits Limits) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.watched(s)
	w.limits = limits
	if w.told.IsZero() { // otherwise it runs until the grace is over
		w.timer.Reset(w.next(a.call))
	}
}

// Cancel is like Stop, but also abandons a handler that ignores the end of its context.
func (s *Slots) Cancel(a *Attempt, cause error) {
	a.Stop(cause)
	a.mu.Lock()
	defer a.mu.Unlock()
	if w := a.watched(s); w.told.IsZero() {
		w.told, w.cause = time.Now(), cause
		w.timer.Reset(s.Grace)
	}
}

// watched returns the attempt's watch, and creates it if necessary. The lock must be held.
func (a *Attempt) watched(s *Slots) *watch {
	if a.watch == nil {
		now := time.Now()
		a.watch = &watch{began: now, alive: now}
		a.watch.timer = time.AfterFunc(time.Hour, func() { s.look(a) })
	}
	return a.watch
}

// next returns the time until a limit can be reached. The context must not have ended yet.
func (w *watch) next(c *Call) time.Duration {
	next := time.Hour
	if w.limits.Cause != nil {
		next = min(next, w.limits.Time-time.Since(w.began))
	}
	if w.limits.Stall > 0 {
		next = min(next, w.limits.Stall-time.Since(c.lastSign(w.alive)))
	}
	return max(next, 0)
}

// look checks whether a handler has to be told to end or has to be abandoned.
func (s *Slots) look(a *Attempt) {
	if a.overdue(s.Grace) {
		s.giveUp(a)
	}
}

// overdue tells a handler that has reached a limit to end. It reports whether a handler that was
// told has used up its grace. If not, it sets the timer for the next check.
func (a *Attempt) overdue(grace time.Duration) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over || a.ctx == nil { // it has ended, or will end as it begins
		return false
	}
	w := a.watch
	if w.told.IsZero() {
		w.tell(a)
	}
	if w.told.IsZero() {
		w.timer.Reset(w.next(a.call))
		return false
	}
	left := grace - time.Since(w.told)
	if left > 0 {
		w.timer.Reset(left)
	}
	return left <= 0
}

// tell records the end of a context that has reached its time limit, and ends the context of a
// handler without a sign of life for too long. The attempt's lock must be held.
func (w *watch) tell(a *Attempt) {
	if l := w.limits; l.Cause != nil && time.Since(w.began) >= l.Time {
		w.told, w.cause = w.began.Add(l.Time), l.Cause
	} else if l.Stall > 0 && time.Since(a.call.lastSign(w.alive)) >= l.Stall {
		w.told, w.cause = time.Now(), fmt.Errorf("%w for %v", ErrStalled, l.Stall)
		a.stop(w.cause)
	}
}

// giveUp ends an attempt whose handler is still running. It starts a new slot, since the handler
// keeps the old one.
func (s *Slots) giveUp(a *Attempt) {
	r := Result{Trace: s.stacks.of(a), Ended: time.Now()}
	if !a.forsake(&r) {
		return // the handler has returned meanwhile
	}
	if a.counted {
		s.hung.Add(1)
	}
	s.running.Add(-1)
	s.count.Add(-1)
	s.learn(r.Ran)
	s.Done(a, r)
	s.release(a.claim)
	go s.slot()
}

// forsake is end for a handler that is still running. It reports whether the attempt had not ended.
func (a *Attempt) forsake(r *Result) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over {
		return false
	}
	a.over, a.forsaken = true, true
	r.Err, r.Ran, r.Hung = a.watch.cause, time.Since(a.watch.began), a.call.wasTold()
	a.counted = r.Hung && a.call.countOnce()
	r.Counted = a.counted
	if !r.Hung {
		r.Trace = ""
	}
	return true
}

// returned handles the return of an abandoned handler.
func (s *Slots) returned(a *Attempt, r Result) {
	if a.counted {
		s.hung.Add(-1)
		s.Late(a, r)
	}
}

// Hung returns the number of abandoned handlers that have not returned.
func (s *Slots) Hung() int { return int(s.hung.Load()) }

// Alive records a sign of life of the handler.
func (a *Attempt) Alive() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.signOfLife()
}

// signOfLife is Alive. The lock must be held.
func (a *Attempt) signOfLife() {
	if a.watch != nil {
		a.watch.alive = time.Now()
		a.call.sign(a.watch.alive)
	}
}

// Call is a handler call that several attempts share. They share its signs of life, and count as
// one hung handler. A nil Call belongs to one attempt alone.
type Call struct {
	mu        sync.Mutex
	goroutine uint64
	alive     time.Time
	told      bool
	counted   bool
}

// Share says that the attempt's handler runs in a call with others. The first attempt to share a
// call is the one whose goroutine runs it.
func (a *Attempt) Share(c *Call) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	a.call = c
	if c.goroutine == 0 {
		c.goroutine = a.goroutine
	}
}

// Tell records that the call's context has ended. Until then, none of its attempts counts as hung.
func (c *Call) Tell() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = true
}

func (c *Call) sign(at time.Time) {
	if c != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.alive = at
	}
}

func (c *Call) lastSign(own time.Time) time.Time {
	if c == nil {
		return own
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.alive.After(own) {
		return c.alive
	}
	return own
}

func (c *Call) runsIn(own uint64) uint64 {
	if c == nil {
		return own
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.goroutine
}

func (c *Call) wasTold() bool {
	if c == nil {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.told
}

// countOnce reports whether the call had not been counted as hung, and counts it.
func (c *Call) countOnce() bool {
	if c == nil {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	first := !c.counted
	c.counted = true
	return first
}

// stacks finds the stack of one goroutine in a dump of all. Handlers that hang at the same time
// share a dump, because a dump stops the world.
type stacks struct {
	mu   sync.Mutex
	at   time.Time
	dump []byte
}

// mostStacks limits the memory for a dump, in bytes.
const mostStacks = 8 << 20

// WaitsFor notes what the handler that got a context, or a context derived from it, waits for from now on, such as a
// process. If the handler hangs, that is reported instead of its stack.
func WaitsFor(ctx context.Context, what string) {
	if a, ok := ctx.Value(attemptKey{}).(*Attempt); ok {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.waitsFor = what
	}
}

// of returns the stack of the goroutine that runs an attempt's handler, or what the handler waits for.
func (s *stacks) of(a *Attempt) string {
	a.mu.Lock()
	id, since, waitsFor := a.call.runsIn(a.goroutine), a.watch.told, a.waitsFor
	a.mu.Unlock()
	if waitsFor != "" {
		return waitsFor
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dump == nil || s.at.Before(since) || time.Since(s.at) > time.Second {
		s.at, s.dump = time.Now(), allStacks()
	}
	for stack := range bytes.SplitSeq(s.dump, []byte("\n\n")) {
		if bytes.HasPrefix(stack, fmt.Appendf(nil, "goroutine %d ", id)) {
			return string(stack)
		}
	}
	return fmt.Sprintf("the stack of goroutine %d is not among the first %d bytes of all stacks", id, mostStacks)
}

func allStacks() []byte {
	for size := 256 << 10; ; size *= 2 {
		dump := make([]byte, size)
		if n := runtime.Stack(dump, true); n < size || size >= mostStacks {
			return dump[:n]
		}
	}
}

// goroutineID returns the current goroutine's number in stack traces, or 0 if unknown.
func goroutineID() uint64 {
	var head [64]byte
	words := bytes.Fields(head[:runtime.Stack(head[:], false)])
	if len(words) < 2 {
		return 0
	}
	id, _ := strconv.ParseUint(string(words[1]), 10, 64)
	return id
}
