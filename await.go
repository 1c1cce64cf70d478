package tusk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// How a client waits for the ends of tasks.

const firstAwaitPause, longestAwaitPause = 25 * time.Millisecond, time.Second // between reads of one task

// Await waits until a task has ended (completed, cancelled or discarded) and returns it like Get: its Detail has the
// output, its Reason says why it was cancelled or discarded. Only a context with a deadline limits the wait.
//
// The client reads the states of all tasks that its callers wait for together, each at pauses that grow from 25 ms to
// 1 s. After the first read, an outage of the database (store.ErrUnavailable) does not end the wait.
//
// Errors: the context's. ErrNotFound if there is no such task, or if it leaves the database during the wait: it was
// deleted, its retention expired, it was archived, or it was Ephemeral and has completed.
func (c *Client) Await(ctx context.Context, id ID) (*TaskInfo, error) {
	for {
		if err := c.AwaitEnd(ctx, id); err != nil {
			return nil, err
		}
		t, err := c.Get(ctx, id)
		if err != nil || t.State.Finished() { // otherwise, somebody has just retried it
			return t, err
		}
	}
}

// AwaitEnd is like Await for callers that do not need the task, or read it themselves.
func (c *Client) AwaitEnd(ctx context.Context, id ID) error {
	w := &waiter{id: id, ended: make(chan error, 1)}
	c.ends.join(c.store, w)
	defer c.ends.leave(w)
	var err error
	select {
	case err = <-w.ended:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("await task %s: %w", id, err)
	}
	return nil
}

// ends are the calls that wait for tasks to end. While there are any, one goroutine reads the states of their tasks.
type ends struct {
	mu      sync.Mutex
	waiters map[*waiter]struct{}
	joined  chan struct{}      // holds a value if somebody has joined since the last round
	stop    context.CancelFunc // ends the goroutine
}

// waiter is a call that waits for a task to end. The lock of ends guards all fields that change.
type waiter struct {
	id    ID
	ended chan error // gets the result
	told  bool       // whether it got the result
	found bool       // whether the task has been read
	pause time.Duration
	due   time.Time // when the task is to be read next
}

func (e *ends) join(s store.Store, w *waiter) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.waiters) == 0 {
		ctx, cancel := context.WithCancel(context.Background())
		e.waiters, e.joined, e.stop = map[*waiter]struct{}{}, make(chan struct{}, 1), cancel
		go e.watch(ctx, s, e.joined)
	}
	e.waiters[w] = struct{}{}
	select {
	case e.joined <- struct{}{}:
	default:
	}
}

func (e *ends) leave(w *waiter) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.waiters, w)
	if len(e.waiters) == 0 {
		e.stop()
	}
}

// watch reads the states of tasks, one page at a time, until the last waiter has left.
func (e *ends) watch(ctx context.Context, s store.Store, joined <-chan struct{}) {
	for ctx.Err() == nil {
		due, pause := e.round(ctx)
		for page := range slices.Chunk(due, store.MaxPage) {
			e.read(ctx, s, page)
		}
		if len(due) > 0 {
			continue
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-joined:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// round returns the waiters whose tasks are to be read now, ordered by task, or else how long to pause. A read that is
// due includes tasks that would be due before half of their own pause has passed, so that the reads of many waiters
// fall together.
func (e *ends) round(ctx context.Context) (due []*waiter, pause time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if ctx.Err() != nil { // the waiters are those of another goroutine
		return nil, 0
	}
	now, some := time.Now(), false
	pause = longestAwaitPause
	for w := range e.waiters {
		if left := w.due.Sub(now); !w.told && left <= w.pause/2 {
			due, some = append(due, w), some || left <= 0
			pause = min(pause, max(left, 0))
		} else if !w.told {
			pause = min(pause, left)
		}
	}
	if !some {
		return nil, pause
	}
	slices.SortFunc(due, func(a, b *waiter) int { return bytes.Compare(a.id[:], b.id[:]) })
	return due, 0
}

// read reads the tasks of up to store.MaxPage waiters and answers the calls that need not wait any longer.
func (e *ends) read(ctx context.Context, s store.Store, page []*waiter) {
	ids := make([]ID, len(page))
	for i, w := range page {
		ids[i] = w.id
	}
	ids = slices.Compact(ids)
	tasks, err := s.List(ctx, Filter{IDs: ids, Limit: len(ids), NoArgs: true})
	states := make(map[ID]State, len(tasks))
	for i := range tasks {
		states[tasks[i].ID] = tasks[i].State
	}
	held := new(store.HeldError)
	some := errors.As(err, &held) // the others were read
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, w := range page {
		state, err := states[w.id], err
		if some && !slices.Contains(held.Tasks, w.id) {
			err = nil
		}
		switch {
		case err != nil && !(w.found && errors.Is(err, store.ErrUnavailable)):
			w.tell(err)
		case err == nil && state == 0:
			w.tell(w.missing())
		case err == nil && state.Finished():
			w.tell(nil)
		default:
			w.found = w.found || err == nil
			w.pause = min(max(2*w.pause, firstAwaitPause), longestAwaitPause)
			w.due = time.Now().Add(w.pause - rand.N(w.pause/4))
		}
	}
}

func (w *waiter) tell(err error) {
	w.told = true
	w.ended <- err
}

func (w *waiter) missing() error {
	if w.found {
		return fmt.Errorf("%w any more: it has left the database", ErrNotFound)
	}
	return ErrNotFound
}
