package postgres_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store/postgres/pgtest"
)

// A server that is unavailable for longer than leases last does not kill any worker: handlers are stopped, because
// their leases may have ended, but no attempt and no crash is counted.
func TestAServerThatIsAwayForLongerThanALeaseIsNobodysDeath(t *testing.T) {
	server, err := pgtest.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	s, _ := open(t, server.Database(t), true)
	client, err := tusk.NewClient(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	mux, begun, again := tusk.NewMux(), make(chan struct{}, 10), atomic.Bool{}
	attempts := make(chan int, 10)
	tusk.Handle(mux, func(ctx context.Context, task *tusk.Task[hang]) error {
		if again.Load() {
			attempts <- task.Attempt
			return nil
		}
		begun <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	})
	const lease = 3 * time.Second
	ended := make(chan error, 2)
	for range 2 { // each rescues the other's tasks if it can
		w, err := tusk.NewWorker(client, mux, &tusk.WorkerConfig{Lease: lease, Concurrency: 5})
		if err != nil {
			t.Fatal(err)
		}
		go func() { ended <- w.Run(ctx) }()
	}
	const tasks = 4
	var ids []tusk.ID
	for range tasks {
		r, err := client.Enqueue(ctx, hang{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, r.ID)
	}
	for range tasks {
		<-begun
	}
	again.Store(true)
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * lease)
	if err := server.Run(); err != nil {
		t.Fatal(err)
	}
	for range tasks {
		select {
		case n := <-attempts:
			if n != 1 {
				t.Errorf("attempt %d", n)
			}
		case <-time.After(time.Minute):
			t.Fatal("a task does not run again")
		}
	}
	eventually(t, "all have completed", func() bool {
		for _, id := range ids {
			task, err := client.Get(ctx, id)
			if err != nil || task.State != tusk.StateCompleted {
				return false
			}
			if task.Crashes != 0 {
				t.Fatalf("%d crashes were counted", task.Crashes)
			}
		}
		return true
	})
	cancel()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
