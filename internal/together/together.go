// Package together lets concurrent calls of one process share transactions, so that they cost the database as much as
// one.
//
// It accesses no database itself; callers pass a function.
package together

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Calls makes calls of one kind wait while others are in progress, and then answers them with one transaction. A call
// runs at once if no other is in progress.
type Calls[T any] struct {
	// Patience is how long a call waits for the transactions in progress, one of which may hang, before it runs
	// alone. 0 means no limit.
	Patience time.Duration

	mu      sync.Mutex
	busy    int // transactions in progress
	waiting []*joined[T]
}

// joined is a waiting call.
type joined[T any] struct {
	value T
	size  int
	ctx   context.Context
	wake  chan turn
	err   error
}

// turn says why a waiting call is woken.
type turn int

const (
	answered turn = iota
	leads         // it runs the transaction, for itself and others
	alone         // it runs a transaction of its own
)

// many is how many calls have to wait before a second transaction begins while one is in progress.
const many = 6

// Most is the maximum number of tasks in one transaction.
const Most = 640

// Do calls run for value, together with the values of other calls that joins accepts. If joins is nil, it accepts
// all. Do returns false if the caller should run alone: because its context has ended, it has waited for Patience, or
// run reports that it did nothing.
func (t *Calls[T]) Do(
	ctx context.Context, value T, size int, joins func(a, b T) bool, run func(ctx context.Context, all []T) (bool, error),
) (done bool, err error) {
	own := &joined[T]{value: value, size: size, ctx: ctx, wake: make(chan turn, 1)}
	if !t.enter(own) {
		if what := t.wait(own); what != leads {
			return what == answered, own.err
		}
	}
	runtime.Gosched() // calls that were answered together return together
	all := t.gather(own, joins)
	t.run(all, run)
	return <-own.wake == answered, own.err
}

// enter reports whether a call may run at once. If not, it joins the waiting calls.
func (t *Calls[T]) enter(own *joined[T]) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pays(len(t.waiting) + 1) {
		t.busy++
		return true
	}
	t.waiting = append(t.waiting, own)
	return false
}

// wait waits for the turn of a call that may not run at once. When its context or its patience ends, it runs alone,
// unless it is being answered.
func (t *Calls[T]) wait(own *joined[T]) turn {
	var enough <-chan time.Time
	if t.Patience > 0 {
		timer := time.NewTimer(t.Patience)
		defer timer.Stop()
		enough = timer.C
	}
	select {
	case what := <-own.wake:
		return what
	case <-own.ctx.Done():
	case <-enough:
	}
	if t.leave(own) {
		return alone
	}
	return <-own.wake
}

// leave removes a waiting call, unless it leads or is being answered.
func (t *Calls[T]) leave(own *joined[T]) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, one := range t.waiting {
		if one == own {
			t.waiting = append(t.waiting[:i], t.waiting[i+1:]...)
			return true
		}
	}
	return false
}

// gather removes and returns the waiting calls that join a call.
func (t *Calls[T]) gather(own *joined[T], joins func(a, b T) bool) []*joined[T] {
	t.mu.Lock()
	defer t.mu.Unlock()
	all, rest, size := []*joined[T]{own}, t.waiting[:0], own.size
	for _, one := range t.waiting {
		if size+one.size <= Most && (joins == nil || joins(own.value, one.value)) {
			all, size = append(all, one), size+one.size
		} else {
			rest = append(rest, one)
		}
	}
	clear(t.waiting[len(rest):])
	t.waiting = rest
	return all
}

// run runs a transaction for calls. It ends early only if the contexts of all of them have ended.
func (t *Calls[T]) run(all []*joined[T], run func(ctx context.Context, all []T) (bool, error)) {
	ctx := all[0].ctx
	if len(all) > 1 {
		shared, cancel := context.WithCancel(context.WithoutCancel(ctx))
		defer cancel()
		ctx = shared
		var left atomic.Int64
		left.Store(int64(len(all)))
		for _, one := range all {
			defer context.AfterFunc(one.ctx, func() {
				if left.Add(-1) == 0 {
					cancel()
				}
			})()
		}
	}
	values := make([]T, len(all))
	for i, one := range all {
		values[i] = one.value
	}
	done, err := false, error(nil)
	defer func() { // even if run panics; then the others run alone
		t.answer(all, done, err)
		t.pass()
	}()
	done, err = run(ctx, values)
}

// answer wakes calls whose transaction has ended.
func (t *Calls[T]) answer(all []*joined[T], done bool, err error) {
	for _, one := range all {
		if done {
			one.err = err
			one.wake <- answered
		} else {
			one.wake <- alone
		}
	}
}

// pass lets the call that has waited longest lead, if enough calls wait.
func (t *Calls[T]) pass() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.busy--
	if len(t.waiting) > 0 && t.pays(len(t.waiting)) {
		t.busy++
		t.waiting[0].wake <- leads
		t.waiting = t.waiting[1:]
	}
}

// pays reports whether a transaction for this number of calls should begin now.
func (t *Calls[T]) pays(calls int) bool { return t.busy == 0 || t.busy == 1 && calls >= many }
