package main

import (
	"context"
	"time"

	"github.com/tuskqueue/tusk/store/postgres"
)

// held compares Tusk with itself: producing and consuming alone, and beside a transaction that
// stays open all the time.
func held(ctx context.Context, b *bench) ([]bar, error) {
	run := tuskRun{batch: 500, lasts: time.Duration(b.size(10, 180)) * time.Second}
	beside := run
	beside.held = true
	all, err := compare(ctx, b, run.lasts.String(), []contender{{"free", run.run}, {"held", beside.run}})
	if err != nil {
		return nil, err
	}
	return []bar{atLeast(0.9, ratios(all["held"], all["free"], speed),
		"tasks/s with a transaction held open, of those without, for "+run.lasts.String(), "%.0f to %.0f",
		medianOf(all["held"], speed), medianOf(all["free"], speed))}, nil
}

// life measures what tasks leave behind.
func life(ctx context.Context, b *bench) ([]bar, error) {
	tasks := b.size(200_000, 10_000_000)
	f, err := measure(ctx, b.pool, contender{"tusk", tuskRun{tasks: tasks, batch: 500}.run})
	if err != nil {
		return nil, err
	}
	b.pool.Reset() // backends report their statistics when they end
	time.Sleep(2 * time.Second)
	engine, err := postgres.New(ctx, b.pool, postgres.Options{})
	if err != nil {
		return nil, err
	}
	m, err := engine.Measure(ctx)
	if err != nil {
		return nil, err
	}
	return []bar{
		atMost(400, f.wal, "bytes of WAL for a task, all of its life", "%d tasks", tasks),
		atMost(0, float64(m.DeadRows), "dead rows in log, positions and outcomes", "%d tasks", tasks),
	}, nil
}
