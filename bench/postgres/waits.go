package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store/postgres"
)

// timed is the args of a task whose wait is measured.
type timed struct {
	Sent time.Time `json:"sent"` // written and read by this process's clock
	Pad  string    `json:"pad"`
}

func (timed) Kind() string { return "timed" }

// starts measures how long tasks wait until their handler starts. They are produced one by one at a
// rate, in one of the queues.
type starts struct {
	o      postgres.Options
	queues int
	poll   time.Duration
	rate   int
	tasks  int
}

// measure returns the waits, and the share of a core that the idle server used before them.
func (s starts) measure(
	ctx context.Context, b *bench, idle time.Duration,
) (waits []time.Duration, share float64, err error) {
	client, err := fresh(ctx, b.pool, s.o)
	if err != nil {
		return nil, 0, err
	}
	queues := make([]string, s.queues)
	for i := range queues {
		queues[i] = fmt.Sprintf("queue-%d", i)
		if err := enqueue(ctx, client, queues[i], 1); err != nil { // so that every queue has been used
			return nil, 0, err
		}
	}
	var mu sync.Mutex
	mux := tusk.NewMux()
	tusk.HandleFunc(mux, handle)
	tusk.HandleFunc(mux, func(_ context.Context, a timed) error {
		mu.Lock()
		defer mu.Unlock()
		waits = append(waits, time.Since(a.Sent))
		return nil
	})
	worker, err := tusk.NewWorker(client, mux, &tusk.WorkerConfig{Queues: queues, Poll: s.poll})
	if err != nil {
		return nil, 0, err
	}
	working, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- worker.Run(working) }()
	defer func() {
		stop()
		if problem := <-done; err == nil {
			err = problem
		}
	}()
	settled := 3 * time.Second // the queues are emptied, and the worker leads and listens
	if idle > 0 {
		settled = 15 * time.Second // and the leader has noted the names of new queues, which it does once
	}
	time.Sleep(settled)
	if idle > 0 {
		engine, err := postgres.New(ctx, b.pool, postgres.Options{})
		if err != nil {
			return nil, 0, err
		}
		before, err := used(ctx, engine)
		if err != nil {
			return nil, 0, err
		}
		time.Sleep(idle)
		after, err := used(ctx, engine)
		if err != nil {
			return nil, 0, err
		}
		share = (after.cpu - before.cpu).Seconds() / idle.Seconds()
	}
	if err := s.produce(ctx, client, queues[s.queues/2]); err != nil {
		return nil, 0, err
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		mu.Lock()
		n := len(waits)
		mu.Unlock()
		if n == s.tasks {
			break
		}
		if time.Now().After(deadline) {
			return nil, 0, fmt.Errorf("%d of %d tasks were run", n, s.tasks)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	fmt.Fprintf(os.Stderr, "%d queues, %d tasks/s, quiet %v: p50 %v, p99 %v, idle %.2f %% of a core\n",
		s.queues, s.rate, s.o.Quiet, quantile(waits, 0.5), quantile(waits, 0.99), 100*share)
	return waits, share, nil
}

// produce enqueues tasks one by one at the rate. It uses several goroutines, because each waits for
// the server's disk.
func (s starts) produce(ctx context.Context, client *tusk.Client, queue string) error {
	begun := time.Now()
	var next atomic.Int64
	var producers errgroup.Group
	for range 16 {
		producers.Go(func() error {
			for {
				i := next.Add(1) - 1
				if i >= int64(s.tasks) {
					return nil
				}
				time.Sleep(time.Until(begun.Add(time.Duration(i) * time.Second / time.Duration(s.rate))))
				if _, err := client.Enqueue(ctx, timed{time.Now(), pad}, &tusk.Options{Queue: queue}); err != nil {
					return err
				}
			}
		})
	}
	return producers.Wait()
}

// manyQueues measures a worker on a thousand queues, one of which is busy.
func manyQueues(ctx context.Context, b *bench) ([]bar, error) {
	idle := time.Duration(b.size(20, 120)) * time.Second
	waits, share, err := starts{queues: 1000, rate: 50, tasks: b.size(250, 3000)}.measure(ctx, b, idle)
	if err != nil {
		return nil, err
	}
	return []bar{
		atMost(50, ms(quantile(waits, 0.99)), "ms from enqueue to start, p99, one of 1,000 queues busy", "p50 %.1f ms",
			ms(quantile(waits, 0.5))),
		atMost(2, 100*share, "% of a core that the server uses with 1,000 idle queues", "%v", idle),
	}, nil
}

// latency measures the time from enqueue to start at 1,000 tasks per second.
func latency(ctx context.Context, b *bench) (bars []bar, err error) {
	const poll = 100 * time.Millisecond
	s := starts{queues: 1, rate: 1000, tasks: b.size(5000, 120_000)}
	waits, _, err := s.measure(ctx, b, 0)
	if err != nil {
		return nil, err
	}
	bars = append(bars,
		atMost(3, ms(quantile(waits, 0.5)), "ms from enqueue to start at 1,000 tasks/s, p50", "notifications"),
		atMost(20, ms(quantile(waits, 0.99)), "ms from enqueue to start at 1,000 tasks/s, p99", "notifications"))
	s.o.Quiet, s.poll = true, poll
	if waits, _, err = s.measure(ctx, b, 0); err != nil {
		return bars, err
	}
	return append(bars, atMost(ms(poll)+20, ms(quantile(waits, 0.99)),
		"ms from enqueue to start at 1,000 tasks/s, p99, without notifications", "polled every %v, p50 %.1f ms", poll,
		ms(quantile(waits, 0.5)))), nil
}

func ms(d time.Duration) float64 { return micros(d) / 1000 }
