package scenario

import (
	"context"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/bench/harness"
)

var readers = Scenario{
	Name: "readers", Title: "Produce and consume beside overlapping readers",
	What: "As above, beside three sessions that each read in transactions of 600 ms, one beginning every 200 ms: there " +
		"is always one open, though none is long.",
	Plan: togetherPlan,
	Around: func(t Target) harness.Surroundings {
		return func(ctx context.Context) (func(), error) { return overlap(ctx, t) }
	},
}

const (
	readersCount = 3
	readFor      = 600 * time.Millisecond
)

// overlap keeps reading in overlapping transactions until end is called.
func overlap(ctx context.Context, t Target) (end func(), err error) {
	ctx, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	for i := range readersCount {
		first, err := hold(ctx, t)
		if err != nil {
			stop()
			all.Wait()
			return nil, err
		}
		all.Go(func() {
			pause := time.Duration(i+1) * readFor / readersCount
			for release := first; ; pause = readFor {
				select {
				case <-ctx.Done():
				case <-time.After(pause):
				}
				release()
				var err error
				if release, err = hold(ctx, t); err != nil {
					return // the run has ended
				}
			}
		})
	}
	return func() { stop(); all.Wait() }, nil
}
