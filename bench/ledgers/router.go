package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres/pgtest"
)

// work is the args of a task: 80 bytes of JSON.
type work struct {
	N   int    `json:"n"`
	Pad string `json:"pad"`
}

func (work) Kind() string { return "work" }

const (
	pad         = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
	batch       = 500
	mostWaiting = 100 // batches, before producers wait
	hands       = 2   // produce, and so many consume
)

// engine is what a run needs of one.
type engine interface {
	store.Store
	store.Meter
	io.Closer
}

// figure is what a run measured.
type figure struct {
	perSecond float64 // tasks
	server    float64 // microseconds of the servers' processor time a task
	trips     float64 // round trips a thousand tasks
	claims    float64 // a thousand tasks
}

// contender opens a fresh queue.
type contender struct {
	name string
	on   []*pgtest.Server
	open func(ctx context.Context, dsns []string) (engine, error)
}

// router compares the engine alone with a router over one ledger of it, over three in one
// server, and over three servers with one each.
func router(ctx context.Context, b *bench) ([]bar, error) {
	all, _, stop, err := servers(3)
	if err != nil {
		return nil, err
	}
	defer stop()
	ledgersOn := func(n int) func(ctx context.Context, dsns []string) (engine, error) {
		return func(ctx context.Context, dsns []string) (engine, error) { return divided(ctx, n, dsns...) }
	}
	figures, err := compare(ctx, b, []contender{
		{"alone", all[:1], func(ctx context.Context, dsns []string) (engine, error) { return alone(ctx, dsns[0]) }},
		{"one ledger", all[:1], ledgersOn(1)},
		{"three in one", all[:1], ledgersOn(3)},
		{"three servers", all, ledgersOn(3)},
	})
	if err != nil {
		return nil, err
	}
	own, one, three, apart := figures["alone"], figures["one ledger"], figures["three in one"], figures["three servers"]
	speed, cpu := func(f figure) float64 { return f.perSecond }, func(f figure) float64 { return f.server }
	seen := func(a, b []figure, of func(figure) float64, unit string) string {
		return fmt.Sprintf("%.4g %s to %.4g", medianOf(a, of), unit, medianOf(b, of))
	}
	return []bar{
		{ratios(one, own, speed), 0.9, true, "tasks/s of a ledger behind the router, of the engine alone",
			seen(one, own, speed, "a second")},
		{ratios(one, own, cpu), 1.05, false, "server CPU a task behind the router, of that alone", seen(one, own, cpu, "us")},
		{ratios(three, one, cpu), 1.25, false, "server CPU a task with three ledgers in one server, of that with one",
			seen(three, one, cpu, "us")},
		{ratios(apart, one, cpu), 1.15, false, "server CPU a task with three servers, of that with one",
			seen(apart, one, cpu, "us")},
	}, nil
}

// compare runs the contenders in turn, each round beginning with another one.
func compare(ctx context.Context, b *bench, contenders []contender) (map[string][]figure, error) {
	figures := map[string][]figure{}
	for round := range b.rounds {
		for i := range contenders {
			c := contenders[(i+round)%len(contenders)]
			f, err := c.measure(ctx, fmt.Sprintf("run_%d_%d", round, i), b.tasks)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			figures[c.name] = append(figures[c.name], f)
			fmt.Fprintf(os.Stderr, "round %d: %-14s %8.0f tasks/s, servers %5.2f us, %5.2f trips and %5.2f claims a thousand\n",
				round+1, c.name, f.perSecond, f.server, f.trips, f.claims)
		}
	}
	return figures, nil
}

func (c contender) measure(ctx context.Context, name string, tasks int) (f figure, err error) {
	var dsns []string
	for _, s := range c.on {
		if err := errors.Join(s.Exec(ctx, "create database "+name), s.Exec(ctx, "checkpoint")); err != nil {
			return f, err
		}
		dsn, err := url.Parse(s.DSN)
		if err != nil {
			return f, err
		}
		dsn.Path = "/" + name
		dsns = append(dsns, dsn.String())
	}
	e, err := c.open(ctx, dsns)
	if err != nil {
		return f, err
	}
	f, err = produceAndConsume(ctx, e, tasks)
	err = errors.Join(err, e.Close())
	for _, s := range c.on {
		err = errors.Join(err, s.Exec(ctx, "drop database "+name+" with (force)"))
	}
	return f, err
}

// produceAndConsume takes tasks through their life: through the client, and through workers. A quarter as many go
// before those that are measured, so that connections are open and their statements planned.
func produceAndConsume(ctx context.Context, e engine, tasks int) (f figure, err error) {
	client, err := tusk.NewClient(e, &tusk.ClientConfig{Logger: discard})
	if err != nil {
		return f, err
	}
	p := &produce{client: client}
	mux := tusk.NewMux()
	tusk.HandleFunc(mux, func(context.Context, work) error { p.handled.Add(1); return nil })
	working, stop := context.WithCancel(ctx)
	defer stop()
	var workers errgroup.Group
	for range hands {
		worker, err := tusk.NewWorker(client, mux, &tusk.WorkerConfig{Concurrency: 16, ReadAhead: batch})
		if err != nil {
			return f, err
		}
		workers.Go(func() error { return worker.Run(working) })
	}
	if err := p.run(ctx, tasks/4); err != nil {
		return f, err
	}
	warm := p.stored.Load()
	before, err := e.Measure(ctx)
	if err != nil {
		return f, err
	}
	begun := time.Now()
	err = p.run(ctx, tasks)
	took := time.Since(begun)
	stop() // and write the last outcomes
	err = errors.Join(err, workers.Wait())
	after, failed := e.Measure(ctx)
	n := float64(p.stored.Load() - warm)
	used := after.ServerCPU - before.ServerCPU
	return figure{n / took.Seconds(), float64(used.Nanoseconds()) / 1000 / n,
		float64(after.RoundTrips-before.RoundTrips) * 1000 / n, float64(after.Queries-before.Queries) * 1000 / n,
	}, errors.Join(err, failed)
}

// produce enqueues batches, and waits where workers are far behind.
type produce struct {
	client          *tusk.Client
	stored, handled atomic.Int64
}

// run enqueues so many tasks, and waits until they have been handled.
func (p *produce) run(ctx context.Context, tasks int) error {
	var made atomic.Int64
	var producers errgroup.Group
	for range hands {
		producers.Go(func() error {
			for made.Add(batch) <= int64(tasks) {
				for p.stored.Load()-p.handled.Load() > mostWaiting*batch {
					time.Sleep(time.Millisecond)
				}
				if err := enqueue(ctx, p.client, batch); err != nil {
					return err
				}
				p.stored.Add(batch)
			}
			return nil
		})
	}
	err := producers.Wait()
	for err == nil && p.handled.Load() < p.stored.Load() && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	return err
}

func enqueue(ctx context.Context, client *tusk.Client, n int) error {
	tasks := make([]tusk.NewTask, n)
	for i := range tasks {
		tasks[i] = tusk.NewTask{Args: work{i, pad}}
	}
	_, err := client.EnqueueMany(ctx, tasks)
	return err
}

// ratios are those of one round each; their median.
func ratios(a, b []figure, of func(figure) float64) float64 {
	var all []float64
	for i := range a {
		all = append(all, of(a[i])/of(b[i]))
	}
	return median(all)
}

func medianOf(figures []figure, of func(figure) float64) float64 {
	var all []float64
	for _, f := range figures {
		all = append(all, of(f))
	}
	return median(all)
}

func median(values []float64) float64 {
	values = slices.Sorted(slices.Values(values))
	return values[len(values)/2]
}
