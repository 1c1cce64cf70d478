package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/ledgers"
	"github.com/tuskqueue/tusk/store/postgres/pgtest"
)

const (
	lostRate  = 2000 // tasks per second
	lostHands = 20   // goroutines that enqueue them, one by one
)

// seen records what happened to tasks that were enqueued one by one.
type seen struct {
	mu     sync.Mutex
	stored map[store.ID]time.Time // when the enqueuing call began
	waited map[store.ID]time.Duration
	twice  int
	failed []error
}

// lost kills one of three servers while tasks are enqueued, and restarts it: first one without the home ledger, then
// the home.
func lost(ctx context.Context, b *bench) (bars []bar, err error) {
	all, dsns, stop, err := servers(3)
	if err != nil {
		return nil, err
	}
	defer stop()
	s, err := divided(ctx, 3, dsns...)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	for _, victim := range []struct {
		*pgtest.Server
		when string
	}{{all[2], "while a server was lost"}, {all[0], "while the home server was lost"}} {
		tally, err := steadily(ctx, s, func() error {
			time.Sleep(b.lasts / 4)
			if err := victim.Kill(); err != nil {
				return err
			}
			time.Sleep(b.lasts / 4)
			if err := victim.Run(); err != nil {
				return err
			}
			time.Sleep(b.lasts / 2)
			return nil
		})
		if err != nil {
			return bars, err
		}
		bars = append(bars, tally.bars(victim.when)...)
	}
	return bars, nil
}

// steadily enqueues and runs tasks one by one, at a rate of lostRate, while do runs. Then it waits until all have run.
func steadily(ctx context.Context, s *ledgers.Store, do func() error) (*seen, error) {
	client, err := tusk.NewClient(s, &tusk.ClientConfig{Logger: discard})
	if err != nil {
		return nil, err
	}
	tally := &seen{stored: map[store.ID]time.Time{}, waited: map[store.ID]time.Duration{}}
	mux := tusk.NewMux()
	tusk.Handle(mux, func(_ context.Context, t *tusk.Task[work]) error { tally.start(t.ID); return nil })
	worker, err := tusk.NewWorker(client, mux, &tusk.WorkerConfig{Concurrency: 100})
	if err != nil {
		return nil, err
	}
	working, done := context.WithCancel(ctx)
	defer done()
	producing, enough := context.WithCancel(ctx)
	defer enough()
	var workers, producers errgroup.Group
	workers.Go(func() error { return worker.Run(working) })
	for range lostHands {
		producers.Go(func() error {
			every := time.NewTicker(lostHands * time.Second / lostRate)
			defer every.Stop()
			for producing.Err() == nil {
				<-every.C
				tally.enqueue(ctx, client)
			}
			return nil
		})
	}
	failed := do()
	enough()
	_ = producers.Wait()
	for end := time.Now().Add(time.Minute); tally.missing() > 0 && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	done()
	if err := workers.Wait(); !errors.Is(err, context.Canceled) {
		failed = errors.Join(failed, err)
	}
	return tally, failed
}

func (t *seen) enqueue(ctx context.Context, client *tusk.Client) {
	began := time.Now()
	r, err := client.Enqueue(ctx, work{Pad: pad}, nil)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		t.failed = append(t.failed, err)
		return
	}
	t.stored[r.ID] = began
}

// start notes when an attempt began. The latency is known once the enqueuing call has returned the
// id.
func (t *seen) start(id store.ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ran := t.waited[id]; ran {
		t.twice++
	}
	t.waited[id] = time.Duration(time.Now().UnixNano())
}

func (t *seen) missing() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id := range t.stored {
		if _, ran := t.waited[id]; !ran {
			n++
		}
	}
	return n
}

// bars says what became of the tasks; when says what happened meanwhile.
func (t *seen) bars(when string) []bar {
	missing := t.missing()
	var waits []time.Duration
	for id, began := range t.stored {
		if at, ran := t.waited[id]; ran {
			waits = append(waits, at-time.Duration(began.UnixNano()))
		}
	}
	slices.Sort(waits)
	for _, err := range t.failed[:min(len(t.failed), 3)] {
		fmt.Fprintln(os.Stderr, "an enqueue failed:", err)
	}
	tasks := fmt.Sprintf("%d tasks", len(t.stored))
	p99 := waits[len(waits)*99/100]
	return []bar{
		{float64(len(t.failed)), 0, false, "plain enqueues that failed " + when, tasks},
		{float64(missing), 0, false, "tasks lost " + when, tasks},
		{float64(t.twice), 0, false, "tasks that ran twice " + when, tasks},
		{p99.Seconds(), 1, false, "seconds from enqueue to start " + when + ", p99",
			fmt.Sprintf("p50 %v, the last %v", waits[len(waits)/2], waits[len(waits)-1])},
	}
}
