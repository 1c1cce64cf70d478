package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// Handlers may hold every connection of the pool that the engine was made with.
func TestTheEnginesOwnWorkGoesOnWhileHandlersHoldThePool(t *testing.T) {
	_, other := fresh(t)
	config := other.Config()
	config.MaxConns = 2
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	s, err := postgres.New(pool, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	w := startWorker(t, s)
	if _, err := s.Enqueue(t.Context(), newTasks(3, "q")); err != nil {
		t.Fatal(err)
	}
	for range config.MaxConns {
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback(context.Background())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := s.Extend(ctx, store.Beat{Worker: store.Worker{ID: w}, TTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
	tasks, err := s.Claim(ctx, store.ClaimRequest{Worker: w, Queues: []string{"q"}, Limit: 3, Token: store.NewToken()})
	if err != nil || len(tasks) != 3 {
		t.Fatalf("claimed %d: %v", len(tasks), err)
	}
	done := completed(tasks)
	done[0].Then = newTasks(1, "next")
	if lost, err := s.Finish(ctx, done); err != nil || len(lost) > 0 {
		t.Fatal(lost, err)
	}
	l, err := s.Lead(ctx, store.Candidate{ID: w, TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Rescue(ctx, l.Term, 10); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Admit(ctx, l.Term, 10); err != nil {
		t.Fatal(err)
	}
}
