package postgres_test

import (
	"testing"
	"time"
)

// A task that is claimed late has others told of the next ones for a moment only. The moment grows with each further
// late one.
func TestOthersAreToldAtOnceForLongerTheMoreTasksInARowAreNotTaken(t *testing.T) {
	s, _, own, others := neighbours(t)
	worker := startWorker(t, s)
	enqueue := func() {
		t.Helper()
		if _, err := s.Enqueue(t.Context(), newTasks(1, "q")); err != nil {
			t.Fatal(err)
		}
		await(t, own, ofQueues)
	}
	for last := time.Duration(0); last < 100*time.Millisecond; last = s.Rest("q") {
		enqueue()
		await(t, others, ofQueues)
		if rest := s.Rest("q"); rest != max(2*last, 10*time.Millisecond) {
			t.Fatalf("others are told at once for %v after %v", rest, last)
		}
		time.Sleep(s.Rest("q"))
		claimsOne(t, s, worker)
	}
	eventually(t, "a task is taken in time", func() bool {
		time.Sleep(s.Rest("q"))
		enqueue()
		claimsOne(t, s, worker)
		time.Sleep(50 * time.Millisecond) // the time to take it ends
		return s.Rest("q") == 0
	})
}

// One stall of a worker, during which several tasks are offered, counts once.
func TestTasksThatWereOfferedTogetherAreMissedOnce(t *testing.T) {
	s, _, own, others := neighbours(t)
	startUnhurried(t, s, 300*time.Millisecond)
	for range 5 {
		if _, err := s.Enqueue(t.Context(), newTasks(1, "q")); err != nil {
			t.Fatal(err)
		}
		await(t, own, ofQueues)
		time.Sleep(20 * time.Millisecond)
	}
	await(t, others, ofQueues)
	eventually(t, "no task is expected", func() bool { return s.Expected() == 0 })
	if rest := s.Rest("q"); rest != 10*time.Millisecond {
		t.Errorf("others are told at once for %v", rest)
	}
}
