package tusk_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

// slow is a store with calls that hang until their contexts end.
type slow struct {
	store.Store
	prune, claim atomic.Bool
}

func wait(ctx context.Context, slow *atomic.Bool) error {
	if slow.Load() {
		<-ctx.Done()
	}
	return ctx.Err()
}

func (s *slow) Prune(ctx context.Context, term int64, r store.Retention, limit int) (int, error) {
	if err := wait(ctx, &s.prune); err != nil {
		return 0, err
	}
	return s.Store.Prune(ctx, term, r, limit)
}

func (s *slow) Claim(ctx context.Context, r store.ClaimRequest) ([]store.Task, error) {
	if err := wait(ctx, &s.claim); err != nil {
		return nil, err
	}
	return s.Store.Claim(ctx, r)
}

// The handler of TestAShutdownDoesNotWaitForADatabaseThatHangs ends when it is told to.
func TestAShutdownDoesNotWaitForADatabaseThatHangs(t *testing.T) {
	for name, c := range map[string]struct {
		hang func(s *slow)
		most time.Duration
	}{
		"in a chore of the leader": {func(s *slow) { s.prune.Store(true) }, 2 * time.Second},
		"in a claim":               {func(s *slow) { s.claim.Store(true) }, 6 * time.Second},
	} {
		inBubble(t, name, func(t *testing.T, s *shop) {
			hanging := &slow{Store: s.store}
			s.client = clientOf(t, hanging)
			told := make(chan time.Time, 1)
			tusk.HandleFunc(s.mux, func(ctx context.Context, _ count) error {
				<-ctx.Done()
				told <- time.Now()
				return ctx.Err()
			})
			w, stop := s.work(&tusk.WorkerConfig{ShutdownTimeout: time.Second})
			id := s.enqueue(count{}, nil)
			s.await(id, tusk.StateRunning)
			for !w.Leads() {
				time.Sleep(time.Second)
			}
			c.hang(hanging)
			time.Sleep(time.Hour) // the chore or the claim has begun
			begun := time.Now()
			err := stop()
			if hung := hanging.claim.Load(); (err != nil) != hung {
				t.Errorf("ended with %v", err)
			}
			if took := (<-told).Sub(begun); took != time.Second {
				t.Errorf("the handler was told after %v, want ShutdownTimeout", took)
			}
			if took := time.Since(begun); took > c.most {
				t.Errorf("the shutdown took %v", took)
			}
			if task := s.get(id); task.State != tusk.StateAvailable || task.Attempt != 0 {
				t.Errorf("not handed back: %+v", task)
			}
			next, err := s.store.Lead(t.Context(), store.Candidate{ID: tusk.NewID(), TTL: time.Minute})
			if err != nil || next.Term == 0 {
				t.Errorf("the leadership was not given up: %+v, %v", next, err)
			}
			synctest.Wait()
		})
	}
}

// noEnds is a store to which no end of an attempt gets through for a time.
type noEnds struct {
	store.Store
	off atomic.Bool
}

func (n *noEnds) Finish(ctx context.Context, o []store.Outcome) ([]store.ID, error) {
	if n.off.Load() {
		return nil, errCut
	}
	return n.Store.Finish(ctx, o)
}

func TestLeasesStayOpenUntilTheOutcomesAreWritten(t *testing.T) {
	inBubble(t, "during a long shutdown", func(t *testing.T, s *shop) {
		none := &noEnds{Store: s.store}
		other := tusk.NewMux()
		tusk.HandleKind(other, "other", func(context.Context, *tusk.Task[count]) error { return nil })
		leader, err := tusk.NewWorker(clientOf(t, s.store), other, &tusk.WorkerConfig{Queues: []string{"other"}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithCancel(context.Background())
		ended := make(chan error)
		go func() { ended <- leader.Run(ctx) }()
		s.client = clientOf(t, none)
		tusk.HandleFunc(s.mux, func(context.Context, count) error { return nil })
		_, stop := s.work(&tusk.WorkerConfig{ShutdownTimeout: 2 * time.Minute, NeverLead: true})
		time.Sleep(2 * time.Second)
		none.off.Store(true)
		id := s.enqueue(count{}, nil)
		s.await(id, tusk.StateRunning)
		time.AfterFunc(time.Minute, func() { none.off.Store(false) })
		s.stop(stop)
		if task := s.get(id); task.State != tusk.StateCompleted || len(task.Detail.Attempts) != 1 {
			t.Errorf("the task is %v, with the attempts %+v", task.State, task.Detail.Attempts)
		}
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
