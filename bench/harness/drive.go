package harness

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// Stages of a run. At each one, the runner waits until it is told to continue, and the harness
// reads its meters.
const (
	Ready    = "ready"    // open, with its history; nothing is enqueued
	Enqueued = "enqueued" // in a backlog run: all is enqueued, nothing consumed
	Measured = "measured" // in an everyday run: all has run, and the workers wait
)

// Drive takes a peer through a plan. It calls pause at every stage.
func Drive(ctx context.Context, peer Peer, p Plan, pause func(stage string) error) (r Result, err error) {
	if err := peer.Open(ctx, p); err != nil {
		return r, fmt.Errorf("open: %w", err)
	}
	defer func() { err = errors.Join(err, peer.Close()) }()
	d := drive{peer: peer, plan: p}
	if p.Order == Everyday {
		return d.everyday(ctx, pause)
	}
	if r.History, err = d.history(ctx); err != nil {
		return r, fmt.Errorf("history: %w", err)
	}
	if err := pause(Ready); err != nil {
		return r, err
	}
	d.tally = newTally(p.Tasks)
	d.began = time.Now()
	switch p.Order {
	case ProduceOnly:
		err = d.produce(ctx)
	case Backlog:
		if err = d.produce(ctx); err == nil {
			err = pause(Enqueued)
		}
		if err == nil {
			d.began = time.Now()
			d.dueNow()
			err = d.consume(ctx, func(context.Context) error { return nil })
		}
	case Together:
		err = d.consume(ctx, d.produce)
	default:
		err = fmt.Errorf("order %q is none", p.Order)
	}
	if d.took == 0 {
		d.took = time.Since(d.began)
	}
	r.Took, r.Stored = d.took, int(d.stored.Load())
	r.Calls, r.Tasks = int(d.tally.calls.Load()), int(d.tally.seen.Load())
	r.Waits = d.tally.waits(d.counts)
	if err == nil && p.Order == ProduceOnly {
		r.Tasks, err = peer.Left(ctx) // what the queue has left is what is stored
	}
	return r, err
}

// drive is a run.
type drive struct {
	peer   Peer
	plan   Plan
	tally  *tally
	began  time.Time
	took   time.Duration
	stored atomic.Int64
}

// counts reports whether the wait of a task is of interest. With tenants, only the waits of the
// small ones are, since the tasks of the first tenant are in their way.
func (d *drive) counts(n int) bool { return d.plan.Tenants == 0 || d.tenant(n) != 0 }

// tenant gives the first half of the tasks to the first tenant, and the rest to the other tenants
// in turn.
func (d *drive) tenant(n int) int {
	if d.plan.Tenants < 2 || n < d.plan.Tasks/2 {
		return 0
	}
	return 1 + n%(d.plan.Tenants-1)
}

func (d *drive) dueNow() {
	for n := range d.plan.Tasks {
		d.tally.dueAt(n, d.began)
	}
}

// produce enqueues all tasks. Several producers take batches in turn.
func (d *drive) produce(ctx context.Context) error {
	if d.plan.Rate > 0 {
		return d.pace(ctx)
	}
	var runAt time.Time
	if d.plan.DueIn > 0 {
		runAt = d.began.Add(d.plan.DueIn)
	}
	producers, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for range d.plan.Producers {
		producers.Go(func() error {
			for {
				from := int(next.Add(int64(d.plan.Batch))) - d.plan.Batch
				if from >= d.plan.Tasks {
					return nil
				}
				if err := d.enqueue(ctx, from, min(from+d.plan.Batch, d.plan.Tasks), runAt); err != nil {
					return err
				}
			}
		})
	}
	if err := producers.Wait(); err != nil {
		return err
	}
	if d.plan.DueIn > 0 && time.Now().After(runAt) {
		return fmt.Errorf("storing %d tasks took longer than the %v after which they are due", d.plan.Tasks, d.plan.DueIn)
	}
	return nil
}

// paceProducers share the tasks of a fixed rate, so that a slow call does not delay the next one.
const paceProducers = 8

// pace enqueues each task by itself at its time, whether or not the tasks before it have been
// stored.
func (d *drive) pace(ctx context.Context) error {
	producers, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for range paceProducers {
		producers.Go(func() error {
			for {
				n := int(next.Add(1)) - 1
				if n >= d.plan.Tasks {
					return nil
				}
				due := d.began.Add(time.Duration(float64(n) / d.plan.Rate * float64(time.Second)))
				select {
				case <-time.After(time.Until(due)):
				case <-ctx.Done():
					return ctx.Err()
				}
				d.tally.dueAt(n, due)
				if err := d.peer.Enqueue(ctx, []Task{{N: n}}); err != nil {
					return fmt.Errorf("enqueue: %w", err)
				}
				d.stored.Add(1)
			}
		})
	}
	return producers.Wait()
}

func (d *drive) enqueue(ctx context.Context, from, to int, runAt time.Time) error {
	tasks := make([]Task, 0, to-from)
	due := runAt
	if due.IsZero() {
		due = time.Now()
	}
	for n := from; n < to; n++ {
		tasks = append(tasks, Task{N: n, RunAt: runAt, Tenant: d.tenant(n)})
		d.tally.dueAt(n, due)
	}
	if err := d.peer.Enqueue(ctx, tasks); err != nil {
		return fmt.Errorf("enqueue: %w", err)
	}
	d.stored.Add(int64(len(tasks)))
	return nil
}

// consume runs the peer's workers while produce runs, until every task has been handled and the
// database knows it. The clock stops there, before the workers are stopped.
func (d *drive) consume(ctx context.Context, produce func(context.Context) error) error {
	working, stop := context.WithCancel(ctx)
	defer stop()
	crew, working := errgroup.WithContext(working)
	crew.Go(func() error {
		if err := d.peer.Work(working, d.handle); err != nil || working.Err() != nil {
			return err
		}
		return errors.New("the workers ended before the work")
	})
	crew.Go(func() error {
		if err := produce(working); err != nil {
			return err
		}
		err := d.settle(working)
		if err == nil {
			stop()
		}
		return err
	})
	return crew.Wait()
}

func (d *drive) handle(n int) {
	d.tally.handle(n)
	if d.plan.Work > 0 {
		time.Sleep(d.plan.Work)
	}
}

// settle waits until all tasks are handled and nothing is left, and stops the clock.
func (d *drive) settle(ctx context.Context) error {
	select {
	case <-d.tally.all:
	case <-ctx.Done():
		return fmt.Errorf("gave up with %d of %d tasks handled: %w", d.tally.seen.Load(), d.plan.Tasks, ctx.Err())
	}
	for {
		d.took = time.Since(d.began) // the answer is at least as new as the question
		left, err := d.peer.Left(ctx)
		if err != nil {
			return fmt.Errorf("left: %w", err)
		}
		if left == 0 {
			return nil
		}
		select {
		case <-time.After(2 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("gave up with %d tasks handled and not finished: %w", left, ctx.Err())
		}
	}
}

// history runs tasks before the run begins, as many as Patience allows.
func (d *drive) history(ctx context.Context) (int, error) {
	const portion = 50000
	made, until := 0, time.Now().Add(d.plan.Patience)
	for made < d.plan.History && time.Now().Before(until) {
		p := Plan{Tasks: min(portion, d.plan.History-made), Batch: d.plan.Batch, Producers: d.plan.Producers}
		part := drive{peer: d.peer, plan: p, tally: newTally(p.Tasks), began: time.Now()}
		if err := part.consume(ctx, part.produce); err != nil {
			return made, err
		}
		made += p.Tasks
	}
	return made, nil
}
