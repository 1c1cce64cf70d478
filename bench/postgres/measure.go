package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk/store/postgres"
)

// figure is the result of one run.
type figure struct {
	perSecond float64 // tasks per second
	server    float64 // microseconds of processor time per task
	client    float64
	wal       float64 // bytes per task
}

// contender runs tasks from start to end. It creates its tables, starts the clock when it is ready,
// stops it when every task is done, and returns how many there were.
type contender struct {
	name string
	run  func(ctx context.Context, pool *pgxpool.Pool, clock *clock) (tasks int, err error)
}

// clock measures what is used between its start and its stop.
type clock struct {
	meter          *postgres.Store
	begun          time.Time
	took           time.Duration
	server, client time.Duration
	wal            int64
	err            error
}

func (c *clock) start(ctx context.Context) {
	c.read(ctx, -1)
	c.begun = time.Now()
}

func (c *clock) stop(ctx context.Context) {
	c.took = time.Since(c.begun)
	c.read(ctx, 1)
}

func (c *clock) read(ctx context.Context, sign int64) {
	u, err := used(ctx, c.meter)
	if err != nil {
		c.err = err
	}
	c.server += time.Duration(sign) * u.cpu
	c.client += time.Duration(sign) * ownCPU()
	c.wal += sign * u.wal
}

// compare runs the contenders in turn and returns their figures by name. Each round begins with
// another contender.
func compare(ctx context.Context, b *bench, what string, contenders []contender) (map[string][]figure, error) {
	figures := map[string][]figure{}
	for round := range b.pairs {
		for i := range contenders {
			c := contenders[(i+round)%len(contenders)]
			f, err := measure(ctx, b.pool, c)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			figures[c.name] = append(figures[c.name], f)
			fmt.Fprintf(os.Stderr, "%s, round %d: %-16s %8.0f tasks/s, server %5.1f us, client %5.1f us, WAL %5.0f B\n",
				what, round+1, c.name, f.perSecond, f.server, f.client, f.wal)
		}
	}
	return figures, nil
}

func measure(ctx context.Context, pool *pgxpool.Pool, c contender) (f figure, err error) {
	meter, err := postgres.New(ctx, pool, postgres.Options{})
	if err != nil {
		return f, err
	}
	if _, err := pool.Exec(ctx, "checkpoint"); err != nil {
		return f, err
	}
	t := &clock{meter: meter}
	tasks, err := c.run(ctx, pool, t)
	if err != nil || t.err != nil {
		return f, errors.Join(err, t.err)
	}
	n := float64(tasks)
	return figure{n / t.took.Seconds(), micros(t.server) / n, micros(t.client) / n, float64(t.wal) / n}, nil
}

// usage is what the server has used since it started.
type usage struct {
	cpu time.Duration
	wal int64
}

func used(ctx context.Context, s *postgres.Store) (usage, error) {
	m, err := s.Measure(ctx)
	return usage{m.ServerCPU, m.WALBytes}, err
}

// ownCPU returns the processor time of this process, which runs producers and workers.
func ownCPU() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// backendCPU returns the processor time of one server process, to the nanosecond.
func backendCPU(pid uint32) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
	if err != nil {
		return 0, err
	}
	ns, err := strconv.ParseInt(strings.Fields(string(text))[0], 10, 64)
	return time.Duration(ns), err
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }

// ratios returns the median of the ratios of each round.
func ratios(a, b []figure, of func(figure) float64) float64 {
	var all []float64
	for i := range a {
		all = append(all, of(a[i])/of(b[i]))
	}
	return median(all)
}

func speed(f figure) float64  { return f.perSecond }
func server(f figure) float64 { return f.server }
func cpu(f figure) float64    { return f.server + f.client }

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

// quantile returns a quantile of durations.
func quantile(of []time.Duration, q float64) time.Duration {
	of = slices.Sorted(slices.Values(of))
	return of[min(int(q*float64(len(of))), len(of)-1)]
}

// hold opens a transaction that pins the vacuum horizon.
func hold(ctx context.Context, pool *pgxpool.Pool) (release func(), err error) {
	tx, err := pool.Begin(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := tx.Exec(ctx, "select pg_current_xact_id()"); err != nil {
		return nil, err
	}
	return func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }, nil
}
