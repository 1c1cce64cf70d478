package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/tuskqueue/tusk"
	tuskmysql "github.com/tuskqueue/tusk/store/mysql"
	"github.com/tuskqueue/tusk/store/mysql/mysqltest"
)

const (
	idleSettles = 12 * time.Second // after which background work has ended
	idleLasts   = 20 * time.Second
)

// ping is a task with the time when it was enqueued.
type ping struct {
	Sent time.Time `json:"sent"`
}

func (ping) Kind() string { return "ping" }

// idle runs workers on empty queues of their own, each with its own connections, as in a process.
// It counts what they send and what they cost. Then it measures how long a task from another
// process waits in each queue, o.rounds times.
func idle(ctx context.Context, server *mysqltest.Server, o *options) error {
	name := fmt.Sprintf("tusk_bench_%d_idle", os.Getpid())
	dsn, err := server.Create(name)
	if err != nil {
		return err
	}
	defer server.Drop(name)
	other, err := tuskmysql.Open(ctx, dsn)
	if err != nil {
		return err
	}
	defer other.Close()
	if _, err := other.Migrate(ctx, -1); err != nil {
		return err
	}
	enqueuer, err := tusk.NewClient(other, nil)
	if err != nil {
		return err
	}
	all := make([]*tusk.Worker, o.idle)
	waits := make(chan time.Duration, o.idle)
	for i := range all {
		s, err := tuskmysql.Open(ctx, dsn)
		if err != nil {
			return err
		}
		defer s.Close()
		if all[i], err = pinged(s, queueOf(i), waits); err != nil {
			return err
		}
	}
	working, stop := context.WithCancel(ctx)
	var workers sync.WaitGroup
	defer func() { stop(); workers.Wait() }()
	for _, w := range all {
		workers.Go(func() {
			if err := w.Run(working); err != nil {
				fmt.Fprintln(os.Stderr, "bench:", err)
			}
		})
	}
	if err := rest(ctx, server, other, o); err != nil {
		return err
	}
	var took []time.Duration
	for range o.rounds {
		if err := sleep(ctx, idleSettles); err != nil {
			return err
		}
		for i := range o.idle {
			if err := sleep(ctx, rand.N(100*time.Millisecond)); err != nil {
				return err
			}
			if _, err := enqueuer.Enqueue(ctx, ping{time.Now()}, &tusk.Options{Queue: queueOf(i)}); err != nil {
				return err
			}
		}
		for range o.idle {
			took = append(took, <-waits)
		}
	}
	slices.Sort(took)
	fmt.Printf("enqueue to start: p50 %v, p99 %v, of %d tasks\n", took[len(took)/2], took[len(took)*99/100], len(took))
	return serial(ctx, dsn)
}

const serialTasks = 100

// serial measures the time between two tasks of a tenant that runs one task at a time, on a server that has nothing
// else to do.
func serial(ctx context.Context, dsn string) error {
	s, err := tuskmysql.Open(ctx, dsn)
	if err != nil {
		return err
	}
	defer s.Close()
	client, err := tusk.NewClient(s, &tusk.ClientConfig{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	if err := client.SetLimits(ctx, "serial", tusk.Limits{PerTenant: 1}); err != nil {
		return err
	}
	var tasks []tusk.NewTask
	for range serialTasks {
		tasks = append(tasks, tusk.NewTask{Args: ping{}, Options: &tusk.Options{Queue: "serial", Tenant: "one"}})
	}
	if _, err := client.EnqueueMany(ctx, tasks); err != nil {
		return err
	}
	mux, began := tusk.NewMux(), make(chan time.Time, serialTasks)
	tusk.HandleFunc(mux, func(context.Context, ping) error {
		began <- time.Now()
		return nil
	})
	w, err := tusk.NewWorker(client, mux, &tusk.WorkerConfig{Queues: []string{"serial"}})
	if err != nil {
		return err
	}
	working, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(working) }()
	last := <-began
	var gaps []time.Duration
	for range serialTasks - 1 {
		at := <-began
		gaps, last = append(gaps, at.Sub(last)), at
	}
	stop()
	slices.Sort(gaps)
	fmt.Printf("from task to task of a serial tenant: p50 %v, p99 %v, the longest %v, of %d tasks\n", gaps[len(gaps)/2],
		gaps[len(gaps)*99/100], gaps[len(gaps)-1], serialTasks)
	return <-ended
}

func queueOf(i int) string { return fmt.Sprintf("idle-%d", i) }

func pinged(s *tuskmysql.Store, queue string, waits chan<- time.Duration) (*tusk.Worker, error) {
	client, err := tusk.NewClient(s, &tusk.ClientConfig{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		return nil, err
	}
	mux := tusk.NewMux()
	tusk.HandleFunc(mux, func(_ context.Context, p ping) error {
		waits <- time.Since(p.Sent)
		return nil
	})
	return tusk.NewWorker(client, mux, &tusk.WorkerConfig{Queues: []string{queue}})
}

// rest measures idle workers.
func rest(ctx context.Context, server *mysqltest.Server, s *tuskmysql.Store, o *options) error {
	if err := sleep(ctx, idleSettles); err != nil {
		return err
	}
	before, err := s.Measure(ctx)
	if err != nil {
		return err
	}
	statements, err := questions(server)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := sleep(ctx, idleLasts); err != nil {
		return err
	}
	took := time.Since(began).Seconds()
	more, err := questions(server)
	after, failed := s.Measure(ctx)
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	for what, n := range more {
		more[what] = n - statements[what]
	}
	fmt.Printf(
		"%d idle processes: %.1f statements a second and process (%.1f with those that procedures run), %.2f %% of a core\n",
		o.idle, more["Questions"]/took/float64(o.idle), more["Queries"]/took/float64(o.idle),
		(after.ServerCPU-before.ServerCPU).Seconds()/took*100)
	return nil
}

// questions returns the server's counts of statements that clients sent, and of all statements.
func questions(server *mysqltest.Server) (map[string]float64, error) {
	db, err := server.Admin()
	if err != nil {
		return nil, err
	}
	defer db.Close()
	rows, err := db.Query("show global status where variable_name in ('Questions', 'Queries')")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	counts := map[string]float64{}
	for rows.Next() {
		var name string
		var n float64
		if err := rows.Scan(&name, &n); err != nil {
			return nil, err
		}
		counts[name] = n
	}
	return counts, rows.Err()
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
