package tusk_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

// together is a store that ends a task and claims the next in one trip.
type together struct {
	store.Store
	mu        sync.Mutex
	exchanges int
	finishes  int
	fail      func() bool
}

func (s *together) Finish(ctx context.Context, outcomes []store.Outcome) ([]store.ID, error) {
	s.mu.Lock()
	s.finishes++
	s.mu.Unlock()
	return s.Store.Finish(ctx, outcomes)
}

// Exchange may fail in either half or both, before or after they take effect.
func (s *together) Exchange(ctx context.Context, o store.Outcome, r store.ClaimRequest) (x store.Exchanged) {
	s.mu.Lock()
	s.exchanges++
	s.mu.Unlock()
	time.Sleep(time.Millisecond)
	if x.FinishErr = errCut; !s.fail() {
		var lost []store.ID
		lost, x.FinishErr = s.Store.Finish(ctx, []store.Outcome{o})
		x.Lost = len(lost) > 0
		if s.fail() {
			x.Lost, x.FinishErr = false, errCut
		}
	}
	if x.ClaimErr = errCut; !s.fail() {
		x.Tasks, x.ClaimErr = s.Store.Claim(ctx, r)
		if s.fail() {
			x.Tasks, x.ClaimErr = nil, errCut
		}
	}
	return x
}

func TestAWorkerOfOneSlotBringsEachTaskWhenItComesForTheNext(t *testing.T) {
	const tasks = 50
	for name, fail := range map[string]func() bool{
		"":                    func() bool { return false },
		", some answers lost": func() bool { return rand.IntN(10) == 0 },
	} {
		inBubble(t, "one after another"+name, func(t *testing.T, s *shop) {
			trips := &together{Store: s.store, fail: fail}
			s.client = clientOf(t, trips)
			ran := map[int]int{}
			tusk.HandleFunc(s.mux, func(_ context.Context, c count) error {
				time.Sleep(100 * time.Millisecond)
				ran[c.N]++
				return nil
			})
			var ids []tusk.ID
			for n := range tasks {
				ids = append(ids, s.enqueue(count{n}, nil))
			}
			_, stop := s.work(&tusk.WorkerConfig{Concurrency: 1, ReadAhead: -1})
			for _, id := range ids {
				s.await(id, tusk.StateCompleted)
			}
			s.stop(stop)
			for n := range tasks {
				if ran[n] != 1 {
					t.Errorf("task %d ran %d times", n, ran[n])
				}
			}
			if name == "" && (trips.exchanges != tasks || trips.finishes > 0) || trips.exchanges < tasks/2 {
				t.Errorf("%d tasks took %d exchanges and %d finishes", tasks, trips.exchanges, trips.finishes)
			}
		})
	}
}
