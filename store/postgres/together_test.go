package postgres_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
)

func TestEnqueuesThatMeetShareTransactions(t *testing.T) {
	s, pool := open(t, migrated.DSN(t, "pool_max_conns=2"), false)
	ctx := context.Background()
	if _, err := s.Enqueue(ctx, newTasks(1, "q")); err != nil { // opens connections, and names the lane
		t.Fatal(err)
	}
	before, err := s.Measure(ctx)
	if err != nil {
		t.Fatal(err)
	}
	const calls, each = 32, 10
	var g sync.WaitGroup
	for range calls {
		g.Go(func() {
			for range each {
				tasks := newTasks(1, "q")
				if got, err := s.Enqueue(ctx, tasks); err != nil || got[0].ID != tasks[0].ID || got[0].Result != store.Added {
					t.Error(got, err)
				}
			}
		})
	}
	g.Wait()
	after, err := s.Measure(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if trips := after.RoundTrips - before.RoundTrips; trips > calls*each/2 {
		t.Errorf("%d trips for %d calls", trips, calls*each)
	}
	if n := stored(t, pool); n != 1+calls*each {
		t.Errorf("%d tasks are stored", n)
	}
}

// A task that cannot be stored fails alone, whichever tasks it shares a transaction with.
func TestAnEnqueueThatFailsTakesNoOtherWithIt(t *testing.T) {
	s, pool := open(t, migrated.DSN(t, "pool_max_conns=1"), false)
	ctx := context.Background()
	if _, err := s.Enqueue(ctx, newTasks(1, "q")); err != nil {
		t.Fatal(err)
	}
	var g sync.WaitGroup
	for i := range 30 {
		g.Go(func() {
			tasks := newTasks(1, "q")
			if i%10 == 5 {
				tasks[0].Kind = "no\x00text"
			}
			if _, err := s.Enqueue(ctx, tasks); errors.Is(err, store.ErrNotCommitted) != (i%10 == 5) {
				t.Errorf("call %d: %v", i, err)
			}
		})
	}
	g.Wait()
	if n := stored(t, pool); n != 28 {
		t.Errorf("%d tasks are stored, want 28", n)
	}
}

func TestACallerWhoseTimeIsOverIsToldAndTheOthersGoOn(t *testing.T) {
	s, pool := open(t, migrated.DSN(t, "pool_max_conns=3"), false)
	ctx := context.Background()
	if _, err := s.Enqueue(ctx, newTasks(1, "q")); err != nil {
		t.Fatal(err)
	}
	tx := begin(t, pool)
	if _, err := tx.Exec(ctx, "lock table tusk.log in exclusive mode"); err != nil {
		t.Fatal(err)
	}
	var g sync.WaitGroup
	for range 8 {
		g.Go(func() {
			if _, err := s.Enqueue(ctx, newTasks(1, "q")); err != nil {
				t.Error(err)
			}
		})
	}
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, err := s.Enqueue(short, newTasks(1, "q")); err == nil || time.Since(began) > 5*time.Second {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	g.Wait()
	if n := stored(t, pool); n < 9 {
		t.Errorf("%d tasks are stored, want those of all who waited", n)
	}
}

func TestAWorkerThatFoundNothingIsToldThatItIsDead(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	worker := newID()
	beat := store.Beat{Worker: store.Worker{ID: worker, Queues: []string{"q"}}, TTL: time.Hour}
	if _, err := s.Extend(ctx, beat); err != nil {
		t.Fatal(err)
	}
	claim := func() ([]store.Task, error) {
		return s.Claim(ctx, store.ClaimRequest{Worker: worker, Queues: []string{"q"}, Limit: 5, Token: store.NewToken()})
	}
	for range 2 {
		if got, err := claim(); err != nil || len(got) != 0 {
			t.Fatal(got, err)
		}
	}
	if _, err := s.Enqueue(ctx, newTasks(1, "q")); err != nil {
		t.Fatal(err)
	}
	if got, err := claim(); err != nil || len(got) != 1 {
		t.Fatal("after it found nothing:", got, err)
	}
	for range 2 {
		if got, err := claim(); err != nil || len(got) != 0 {
			t.Fatal(got, err)
		}
	}
	if _, err := pool.Exec(ctx, "update tusk.worker set dead = true where id = $1", [16]byte(worker)); err != nil {
		t.Fatal(err)
	}
	if _, err := claim(); !errors.Is(err, store.ErrWorkerDead) {
		t.Errorf("a dead worker is told %v", err)
	}
}
