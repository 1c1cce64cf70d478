package harness

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// everyday drives workers that have worked before, and lets the meters be read while they wait for
// more tasks. The first Warm tasks of the plan are not measured.
func (d *drive) everyday(ctx context.Context, pause func(stage string) error) (r Result, err error) {
	p := d.plan
	d.tally = newTally(p.Warm + p.Tasks)
	d.began = time.Now()
	err = d.consume(ctx, func(ctx context.Context) error {
		if err := d.steady(ctx, 0, p.Warm); err != nil {
			return err
		}
		select {
		case <-time.After(p.Settle):
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := pause(Ready); err != nil {
			return err
		}
		began := time.Now()
		if err := d.steady(ctx, p.Warm, p.Warm+p.Tasks); err != nil {
			return err
		}
		select {
		case <-time.After(p.Idle + lastOutcomes):
		case <-ctx.Done():
			return ctx.Err()
		}
		r.Took = time.Since(began)
		return pause(Measured)
	})
	r.Stored, r.Calls, r.Tasks = int(d.stored.Load())-p.Warm, int(d.tally.calls.Load()), int(d.tally.seen.Load())-p.Warm
	r.Waits = d.tally.waits(func(n int) bool { return n >= p.Warm && (p.Shape != Workflow || (n-p.Warm)%Steps == 0) })
	return r, err
}

// lastOutcomes is the time for the last outcomes to be written.
const lastOutcomes = 100 * time.Millisecond

// steady enqueues the tasks numbered from up to to at the plan's rate, and waits until each has run
// as often as it must.
func (d *drive) steady(ctx context.Context, from, to int) error {
	producers, working := errgroup.WithContext(ctx)
	var next atomic.Int64
	next.Store(int64(from))
	began, step := time.Now(), 1
	if d.plan.Shape == Workflow {
		step = Steps
	}
	for range paceProducers {
		producers.Go(func() error {
			for {
				n := int(next.Add(int64(step))) - step
				if n >= to {
					return nil
				}
				select {
				case <-time.After(time.Until(began.Add(time.Duration(float64(n-from) / d.plan.Rate * float64(time.Second))))):
				case <-working.Done():
					return working.Err()
				}
				if err := d.peer.Enqueue(working, []Task{{N: n, Shape: d.plan.Shape, Tenant: n % LimitedTenants}}); err != nil {
					return fmt.Errorf("enqueue: %w", err)
				}
				due := time.Now()
				if d.plan.Shape == Delayed {
					due = due.Add(Delay)
				}
				d.tally.storedAt(n, due)
				d.stored.Add(int64(step))
			}
		})
	}
	if err := producers.Wait(); err != nil {
		return err
	}
	calls := int64(to)
	if d.plan.Shape == Retried {
		calls *= 2
	}
	for d.tally.calls.Load() < calls {
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("gave up with %d of %d calls: %w", d.tally.calls.Load(), calls, ctx.Err())
		}
	}
	return nil
}
