package postgres_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
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
		one(n, &tusk.Options{Key: "k", Tags: []string{"a"}, Tenant: "t"})
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
