package tusk_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/internal/tend"
	"github.com/tuskqueue/tusk/store"
)

// noteless is a store that does not store the records of suspects.
type noteless struct {
	store.Store
	asked atomic.Int64
}

func (n *noteless) PutRecord(ctx context.Context, p store.PutRecord) (int64, []store.Enqueued, error) {
	if p.Record.Kind == tend.SuspectKind {
		n.asked.Add(1)
		<-ctx.Done()
		return 0, nil, ctx.Err()
	}
	return n.Store.PutRecord(ctx, p)
}

func TestSuspectsThatCannotBeNoted(t *testing.T) {
	inBubble(t, "begin together", func(t *testing.T, s *shop) {
		const tasks = 20
		for range tasks {
			s.enqueue(count{}, nil)
		}
		dead := store.Worker{ID: tusk.NewID(), Queues: []string{tusk.DefaultQueue}}
		if _, err := s.store.Extend(t.Context(), store.Beat{Worker: dead, TTL: time.Second}); err != nil {
			t.Fatal(err)
		}
		if got, err := s.store.Claim(t.Context(), store.ClaimRequest{Worker: dead.ID, Queues: dead.Queues, Limit: tasks,
			Token: store.NewToken()}); err != nil || len(got) != tasks {
			t.Fatal(len(got), err)
		}
		kept := &noteless{Store: s.store}
		s.client = clientOf(t, kept)
		began := make(chan time.Time, tasks)
		tusk.HandleFunc(s.mux, func(context.Context, count) error { began <- time.Now(); return nil })
		_, stop := s.work(nil)
		first := <-began
		for range tasks - 1 {
			if late := (<-began).Sub(first); late > 5*time.Second {
				t.Fatalf("one began %v after the first, with %d notes tried", late, kept.asked.Load())
			}
		}
		if kept.asked.Load() == 0 {
			t.Error("none was a suspect")
		}
		s.stop(stop)
	})
}
