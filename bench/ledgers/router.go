package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
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
	mostWaiting = 100                    // batches that wait before producers pause
	hands       = 2                      // producers, and as many consumers
	settles     = 200 * time.Millisecond // time for the last outcomes to be written
)

// engine is what a run needs of an engine.
type engine interface {
	store.Store
	store.Meter
	io.Closer
}

// figure is the result of one run.
type figure struct {
	perSecond float64 // tasks per second
	server    float64 // microseconds of the servers' processor time per task
	trips     float64 // round trips per thousand tasks
	claims    float64 // claims per thousand tasks
}

// contender opens a fresh queue over all its servers or, if it cannot, one on each.
type contender struct {
	name string
	on   []*pgtest.Server
	open func(ctx context.Context, dsns []string) (engine, error)
}

// router compares the engine alone with a router over one of its ledgers, over three ledgers on one
// server, and over three servers with one ledger each. Three engines without a router, on one
// server each, show how much of the last figure is the price of three servers. Each contender has its own servers, so
// that none pays for what the others still have to tidy after their runs.
func router(ctx context.Context, b *bench) ([]bar, error) {
	all, _, stop, err := servers(9)
	if err != nil {
		return nil, err
	}
	defer stop()
	ledgersOn := func(n int) func(ctx context.Context, dsns []string) (engine, error) {
		return func(ctx context.Context, dsns []string) (engine, error) { return divided(ctx, n, dsns...) }
	}
	figures, err := compare(ctx, b, []contender{
		{"alone", all[:1], func(ctx context.Context, dsns []string) (engine, error) { return alone(ctx, dsns[0]) }},
		{"one ledger", all[1:2], ledgersOn(1)},
		{"three in one", all[2:3], ledgersOn(3)},
		{"three servers", all[3:6], ledgersOn(3)},
		{"three alone", all[6:], nil},
	})
	if err != nil {
		return nil, err
	}
	own, one, three := figures["alone"], figures["one ledger"], figures["three in one"]
	apart, control := figures["three servers"], figures["three alone"]
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
		{ratios(apart, control, cpu), 1.05, false,
			"server CPU a task with three servers, of three engines without a router", seen(apart, control, cpu, "us")},
	}, nil
}

// compare opens all contenders and runs them in turn, in a different order in each round. What else
// the machine does changes within seconds, and so affects them equally. Their connections, tables
// and workers stay open, so that what a worker does at its start is not counted. While one
// contender runs, the others are idle, and what the previous one left to write has been written.
func compare(ctx context.Context, b *bench, contenders []contender) (_ map[string][]figure, err error) {
	all := make([]parts, len(contenders))
	for i, c := range contenders {
		if all[i], err = c.start(ctx, fmt.Sprintf("run_%d", i)); err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		defer func() { err = errors.Join(err, all[i].stop()) }()
	}
	figures := map[string][]figure{}
	for round := range b.rounds + 1 {
		for _, i := range rand.Perm(len(contenders)) {
			name := contenders[i].name
			for _, s := range contenders[i].on {
				if err := s.Exec(ctx, "checkpoint"); err != nil {
					return nil, err
				}
			}
			f, err := all[i].measure(ctx, b.tasks)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			if round == 0 { // for practice: it opens connections and plans their statements
				continue
			}
			figures[name] = append(figures[name], f)
			fmt.Fprintf(os.Stderr, "round %d: %-14s %8.0f tasks/s, servers %5.2f us, %5.2f trips and %5.2f claims a thousand\n",
				round, name, f.perSecond, f.server, f.trips, f.claims)
		}
	}
	return figures, nil
}

// running is a queue at work. Tasks go through its client and its workers.
type running struct {
	engine          engine
	client          *tusk.Client
	hands           int
	stored, handled atomic.Int64
	halt            context.CancelFunc
	workers         errgroup.Group
}

// parts is a contender at work: one queue, or several independent ones.
type parts []*running

// start opens a contender on new databases called name, and starts its workers.
func (c contender) start(ctx context.Context, name string) (all parts, err error) {
	var dsns []string
	for _, s := range c.on {
		if err := s.Exec(ctx, "create database "+name); err != nil {
			return nil, err
		}
		dsn, err := url.Parse(s.DSN)
		if err != nil {
			return nil, err
		}
		dsn.Path = "/" + name
		dsns = append(dsns, dsn.String())
	}
	if c.open != nil {
		e, err := c.open(ctx, dsns)
		if err != nil {
			return nil, err
		}
		r, err := start(ctx, e, hands)
		return parts{r}, err
	}
	for _, dsn := range dsns {
		e, err := alone(ctx, dsn)
		if err != nil {
			return nil, errors.Join(err, all.stop())
		}
		r, err := start(ctx, e, 1)
		if err != nil {
			return nil, errors.Join(err, all.stop())
		}
		all = append(all, r)
	}
	return all, nil
}

// start runs an engine's tasks with so many workers.
func start(ctx context.Context, e engine, hands int) (*running, error) {
	client, err := tusk.NewClient(e, &tusk.ClientConfig{Logger: discard})
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	r := &running{engine: e, client: client, hands: hands}
	mux := tusk.NewMux()
	tusk.HandleFunc(mux, func(context.Context, work) error { r.handled.Add(1); return nil })
	working, halt := context.WithCancel(ctx)
	r.halt = halt
	for range hands {
		worker, err := tusk.NewWorker(r.client, mux, &tusk.WorkerConfig{Concurrency: 16, ReadAhead: batch})
		if err != nil {
			return nil, errors.Join(err, r.stop())
		}
		r.workers.Go(func() error { return worker.Run(working) })
	}
	return r, nil
}

func (all parts) stop() (err error) {
	for _, r := range all {
		err = errors.Join(err, r.stop())
	}
	return err
}

func (r *running) stop() error {
	r.halt()
	return errors.Join(r.workers.Wait(), r.engine.Close())
}

// measure runs so many tasks. Each part does its share at the same time.
func (all parts) measure(ctx context.Context, tasks int) (sum figure, err error) {
	each := make([]figure, len(all))
	var measures errgroup.Group
	for i, r := range all {
		measures.Go(func() (err error) {
			each[i], err = r.measure(ctx, tasks/len(all))
			return err
		})
	}
	err = measures.Wait()
	for _, f := range each {
		n := float64(len(all))
		sum = figure{sum.perSecond + f.perSecond, sum.server + f.server/n, sum.trips + f.trips/n,
			sum.claims + f.claims/n}
	}
	return sum, err
}

// measure runs so many tasks, after some others that are not measured.
func (r *running) measure(ctx context.Context, tasks int) (f figure, err error) {
	if err := r.run(ctx, tasks/10); err != nil {
		return f, err
	}
	before, err := r.engine.Measure(ctx)
	if err != nil {
		return f, err
	}
	warm, begun := r.stored.Load(), time.Now()
	err = r.run(ctx, tasks)
	took := time.Since(begun)
	time.Sleep(settles)
	after, failed := r.engine.Measure(ctx)
	n := float64(r.stored.Load() - warm)
	used := after.ServerCPU - before.ServerCPU
	return figure{n / took.Seconds(), float64(used.Nanoseconds()) / 1000 / n,
		float64(after.RoundTrips-before.RoundTrips) * 1000 / n, float64(after.Queries-before.Queries) * 1000 / n,
	}, errors.Join(err, failed)
}

// run enqueues so many tasks, waits while workers are far behind, and finally waits until all tasks
// have been handled.
func (r *running) run(ctx context.Context, tasks int) error {
	var made atomic.Int64
	var producers errgroup.Group
	for range r.hands {
		producers.Go(func() error {
			for made.Add(batch) <= int64(tasks) {
				for r.stored.Load()-r.handled.Load() > mostWaiting*batch {
					time.Sleep(time.Millisecond)
				}
				if err := enqueue(ctx, r.client, batch); err != nil {
					return err
				}
				r.stored.Add(batch)
			}
			return nil
		})
	}
	err := producers.Wait()
	for err == nil && r.handled.Load() < r.stored.Load() && ctx.Err() == nil {
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

// ratios returns the median of the ratios of each round.
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
