package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// An idle worker of the process that enqueues needs no claims: its tasks are leased as they are stored.
func TestSingleTasksOfAnIdleWorkerCostNoClaims(t *testing.T) {
	s, _ := fresh(t)
	client, err := tusk.NewClient(s, &tusk.ClientConfig{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ran := make(chan tusk.ID, 100)
	mux := tusk.NewMux()
	tusk.Handle(mux, func(_ context.Context, task *tusk.Task[job]) error { ran <- task.ID; return nil })
	w, err := tusk.NewWorker(client, mux, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- w.Run(ctx) }()
	one := func(n int, o *tusk.Options) {
		t.Helper()
		r, err := client.Enqueue(t.Context(), job{n}, o)
		if err != nil {
			t.Fatal(err)
		}
		select {
		case id := <-ran:
			if id != r.ID {
				t.Errorf("%v ran, want %v", id, r.ID)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("the task did not run")
		}
		time.Sleep(10 * time.Millisecond)
	}
	for n := range 100 { // the first tasks are claimed: the worker is just starting
		one(n, nil)
	}
	before, err := s.Measure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const n = 60
	for n := range n / 2 {
		one(n, nil)
		one(n, &tusk.Options{Key: fmt.Sprint(n), Tags: []string{"a"}, Tenant: "t"})
	}
	after, err := s.Measure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if claims := after.Queries - before.Queries; claims > n/2 {
		t.Errorf("%d claims for %d tasks", claims, n)
	} else {
		t.Logf("%d claims, %d trips", claims, after.RoundTrips-before.RoundTrips)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A task that is leased as it is stored holds its lane until it is on disk. A claim that passes over such a lane must
// be repeated soon, because nobody notifies of what it missed again.
func TestAClaimThatPassedOverABusyLaneIsRepeated(t *testing.T) {
	s, pool := fresh(t)
	ctx, end := context.WithCancel(t.Context())
	defer end()
	worker := store.Worker{ID: tusk.NewID(), Queues: []string{"p", "q"}, Concurrency: 10}
	if _, err := s.Extend(ctx, store.Beat{Worker: worker, TTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
	claim := func() []store.Task {
		t.Helper()
		tasks, err := s.Claim(ctx, store.ClaimRequest{Worker: worker.ID, Queues: worker.Queues, Limit: 10,
			Token: store.NewToken()})
		if err != nil {
			t.Fatal(err)
		}
		return tasks
	}
	for _, queue := range worker.Queues {
		if _, err := s.Enqueue(ctx, newTasks(1, queue)); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(claim()); n != 2 {
		t.Fatalf("claimed %d of 2", n)
	}
	hints := make(chan store.Hint, 100)
	go s.Listen(ctx, func(h store.Hint) {
		if slices.Contains(h.Queues, "q") {
			hints <- h
		}
	})
	quiet := func() {
		for {
			select {
			case <-hints:
			case <-time.After(300 * time.Millisecond):
				return
			}
		}
	}
	lock := func(changed bool) (unlock func()) {
		t.Helper()
		tx, err := pool.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		call := "tusk_fn.try_lane"
		if changed {
			call = "tusk_fn.lock_lane"
		}
		if _, err := tx.Exec(ctx, postgres.InFunctions("select "+call+"(tusk_fn.lane_of('q', 0))")); err != nil {
			t.Fatal(err)
		}
		return func() { tx.Rollback(ctx) }
	}
	exchange := func() []store.Task {
		t.Helper()
		if _, err := s.Enqueue(ctx, newTasks(1, "p")); err != nil {
			t.Fatal(err)
		}
		ended := completed(claim())[0]
		quiet()
		x := s.Exchange(ctx, ended, store.ClaimRequest{Worker: worker.ID, Queues: worker.Queues, Limit: 1,
			Token: store.NewToken()})
		if err := errors.Join(x.ClaimErr, x.FinishErr); err != nil || x.Lost {
			t.Fatal(err, x.Lost)
		}
		return x.Tasks
	}
	for what, call := range map[string]func() []store.Task{"a claim": claim, "an exchange": exchange} {
		for _, changed := range []bool{false, true} {
			unlock := lock(changed)
			quiet()
			if n := len(call()); n != 0 {
				t.Errorf("%s claimed %d", what, n)
			}
			select {
			case <-hints:
				if changed {
					t.Errorf("%s: a lane that a transaction changes, maybe for long, is claimed from again and again", what)
				}
			case <-time.After(time.Second):
				if !changed {
					t.Errorf("%s passed the lane over for good", what)
				}
			}
			unlock()
		}
	}
}
