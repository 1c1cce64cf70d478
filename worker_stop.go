package tusk

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tuskqueue/tusk/internal/loop"
)

// How a worker runs and stops.

const (
	cutAfter     = time.Second      // for steps in progress when a worker is told to stop
	settleWithin = 5 * time.Second  // for claims to end, or ShutdownTimeout if that is longer
	stuckGrace   = 2 * time.Second  // for handlers to notice that their context has ended
	partingGap   = 10 * time.Second // for everything that comes after ShutdownTimeout
)

// Run processes tasks until ctx ends and then shuts down gracefully: it stops claiming, hands back the tasks that
// it has not started, waits for running handlers until ShutdownTimeout after the end of ctx, then ends their
// contexts, writes all outcomes and signs off, within ten more seconds. It then returns nil, or an error that lists
// the tasks that did not stop; those run again elsewhere when their lease expires. Run stops by itself with
// ErrTooManyHung if MaxHung handlers hang.
//
// A worker runs only once: a second call returns an error.
func (w *Worker) Run(ctx context.Context) error {
	if !w.started.CompareAndSwap(false, true) {
		return invalid("worker", "already_run", "runs already or has run: make a new one")
	}
	hard, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	heart, writes, claims, beside := newCrew(hard), newCrew(hard), newCrew(hard), newCrew(hard)
	heart.loops(w.heart.Loops()...)
	writes.run(func() { w.finish.Run(writes.hard) })
	w.slots.Start(hard, w.config.Concurrency)
	claims.loops(w.source.Loop())
	beside.loops(w.queues.loop)
	if w.leader != nil {
		beside.loops(w.leader.Loops()...)
	}
	if len(w.mux.pipelines) > 0 {
		beside.loops(loop.New("pipelines", 15*time.Second, w.log, w.tellPipelines))
	}
	beside.run(func() { listen(beside.soft, w.client.store, w.log, w.hear) })
	var problem error
	select {
	case <-ctx.Done():
	case <-w.overrun:
		problem = fmt.Errorf("%w: %d of them ignore the end of their contexts", ErrTooManyHung, w.Hung())
		w.log.Error("run: stopping", "error", problem)
	}
	return errors.Join(problem, w.shutDown(hard, heart, writes, claims, beside))
}

// shutDown stops everything concurrently that can stop concurrently, so that no call to a slow database delays the
// notice to the handlers. The outcomes are written until the end, and the heartbeats keep the leases open until then.
func (w *Worker) shutDown(hard context.Context, heart, writes, claims, beside *crew) error {
	limit := time.NewTimer(w.config.ShutdownTimeout)
	defer limit.Stop()
	parting, done := context.WithTimeout(hard, w.config.ShutdownTimeout+partingGap)
	defer done()
	w.slots.Refuse(ErrShutdown)
	resigned := soon(func() error { return w.resign(parting, beside) })
	settled := soon(func() error { return w.settle(hard, claims) })
	stuck := w.drain(settled.done, limit.C)
	w.finish.Close()
	w.suspects.forget(parting)
	err := errors.Join(settled.wait(), resigned.wait())
	writes.stopBy(parting)
	heart.stopBy(parting)
	if stuck != nil {
		return errors.Join(stuck, err)
	}
	return errors.Join(err, w.heart.SignOff(parting))
}

// settle ends claiming. It repeats claims whose answer was lost, and hands back their tasks.
func (w *Worker) settle(hard context.Context, claims *crew) error {
	ctx, done := context.WithTimeout(hard, max(settleWithin, w.config.ShutdownTimeout))
	defer done()
	claims.stopWithin(cutAfter)
	defer w.slots.Close()
	return w.source.Settle(ctx)
}

// resign stops the leader's chores and all other loops besides the tasks, and gives up the leadership. From then on
// the engine refuses the writes of an interrupted chore.
func (w *Worker) resign(parting context.Context, beside *crew) error {
	beside.stopWithin(cutAfter)
	if w.leader == nil {
		return nil
	}
	ctx, done := context.WithTimeout(parting, partingGap)
	defer done()
	return w.leader.Resign(ctx)
}

// drain waits for the handlers, and ends their contexts at the limit.
func (w *Worker) drain(settled <-chan struct{}, limit <-chan time.Time) error {
	empty := make(chan struct{})
	go func() { <-settled; w.slots.Wait(); close(empty) }()
	select {
	case <-empty:
		return nil
	case <-limit:
	}
	for _, a := range w.slots.All() {
		a.Stop(ErrShutdown)
	}
	<-settled
	select {
	case <-empty:
		return nil
	case <-time.After(stuckGrace):
	}
	var ids []string
	for _, a := range w.slots.All() {
		ids = append(ids, a.Task.Kind+" "+a.Task.ID.String())
	}
	return fmt.Errorf("shutdown: %d handlers ignore the end of their context: %v", len(ids), ids)
}

// errand is a call that runs in the background.
type errand struct {
	done chan struct{}
	err  error
}

func soon(f func() error) *errand {
	e := &errand{done: make(chan struct{})}
	go func() { e.err = f(); close(e.done) }()
	return e
}

func (e *errand) wait() error { <-e.done; return e.err }

// crew is a set of loops that start and stop together.
type crew struct {
	hard  context.Context // interrupts steps when it ends
	cut   context.CancelFunc
	soft  context.Context // ends when the crew is told to stop
	halt  context.CancelFunc
	alive chan struct{}
	count int
}

func newCrew(parent context.Context) *crew {
	hard, cut := context.WithCancel(parent)
	soft, halt := context.WithCancel(hard)
	return &crew{hard: hard, cut: cut, soft: soft, halt: halt, alive: make(chan struct{})}
}

func (c *crew) run(f func()) {
	c.count++
	go func() { f(); c.alive <- struct{}{} }()
}

func (c *crew) loops(loops ...*loop.Loop) {
	for _, l := range loops {
		c.run(func() { l.Run(c.hard, c.soft.Done()) })
	}
}

// stopBy tells every member to stop, interrupts the steps when ctx ends, and waits for them.
func (c *crew) stopBy(ctx context.Context) {
	defer context.AfterFunc(ctx, c.cut)()
	c.halt()
	for range c.count {
		<-c.alive
	}
	c.cut()
}

// stopWithin is stopBy with a time instead of a context.
func (c *crew) stopWithin(d time.Duration) {
	ctx, done := context.WithTimeout(context.Background(), d)
	defer done()
	c.stopBy(ctx)
}
