package tusk_test

import (
	"context"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
)

// docs/design/peer-bugs.md lists bugs of other queues and the tests that show that Tusk does
// not have them. Those that no other test covers are here.
func TestPeerBugs(t *testing.T) {
	inBubble(t, "a drain that takes longer than the lease keeps its tasks", func(t *testing.T, s *shop) {
		runs := 0
		tusk.Handle(s.mux, func(context.Context, *tusk.Task[count]) error {
			runs++
			time.Sleep(20 * time.Second)
			return nil
		})
		id := s.enqueue(count{}, nil)
		config := tusk.WorkerConfig{Lease: 3 * time.Second, ShutdownTimeout: time.Minute}
		_, stopFirst := s.work(&config)
		time.Sleep(time.Second)
		_, stopSecond := s.work(&config)
		s.stop(stopFirst)
		if task := s.get(id); task.State != tusk.StateCompleted || task.Attempt != 1 || task.Crashes != 0 || runs != 1 {
			t.Errorf("the task is %v at attempt %d with %d crashes after %d runs", task.State, task.Attempt, task.Crashes, runs)
		}
		s.stop(stopSecond)
	})
	inBubble(t, "a task that is due long after the lease is run once", func(t *testing.T, s *shop) {
		runs := 0
		tusk.Handle(s.mux, func(context.Context, *tusk.Task[count]) error { runs++; return nil })
		id := s.enqueue(count{}, &tusk.Options{Delay: 10 * time.Minute})
		_, stop := s.work(&tusk.WorkerConfig{Lease: 3 * time.Second})
		s.await(id, tusk.StateCompleted)
		time.Sleep(time.Hour)
		if task := s.get(id); runs != 1 || task.Attempt != 1 {
			t.Errorf("%d runs, attempt %d", runs, task.Attempt)
		}
		s.stop(stop)
	})
}
