package ledgers_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/ledgers"
	"github.com/tuskqueue/tusk/store/storetest/wires"
)

// heldAnswers opens two ledgers on two servers. Answers of the second one wait as long as wait says, and for ever while
// silent is set.
func heldAnswers(t *testing.T) (s *ledgers.Store, silent *atomic.Bool, wait *atomic.Int64) {
	t.Helper()
	_, dsns := servers(t, 2)
	if err := divide(2, dsns...); err != nil {
		t.Fatal(err)
	}
	silent, wait = new(atomic.Bool), new(atomic.Int64)
	_, through := wires.Start(t, dsns[1], func(*wires.Wire) wires.Pass {
		return func(piece []byte, up bool) ([]byte, bool) {
			if !up {
				time.Sleep(time.Duration(wait.Load()))
			}
			for silent.Load() {
				time.Sleep(time.Millisecond)
			}
			return piece, true
		}
	})
	t.Cleanup(func() { silent.Store(false); wait.Store(0) })
	return open(t, dsns[0], through), silent, wait
}

// claimPromptly claims what is there until the second ledger has answered soon.
func claimPromptly(t *testing.T, s *ledgers.Store, w store.ID) {
	t.Helper()
	eventually(t, "a prompt answer", func() bool {
		claim(t, s, w, 100)
		return ledgers.IsPrompt(s, 1)
	})
}

// A server falls silent while it is asked for tasks. The claim goes on with the other one. When the server is back, its
// task is handed back, and the attempt does not count.
func TestASilentServerDoesNotHoldUpClaims(t *testing.T) {
	s, silent, _ := heldAnswers(t)
	w := worker(t, s)
	claimPromptly(t, s, w)
	there := keyedInto(s, 1, nil)
	add(t, s, keyedInto(s, 0, nil), there)
	silent.Store(true)
	for _, within := range []time.Duration{4 * time.Second, time.Second} { // then it is not asked
		began := time.Now()
		if got := claim(t, s, w, 100); len(got) != 1 || got[0].ID == there.ID {
			t.Fatalf("claimed %d tasks, want that of the other server", len(got))
		}
		if took := time.Since(began); took > within {
			t.Errorf("a claim took %v", took)
		}
		if within > time.Second {
			add(t, s, keyedInto(s, 0, nil))
		}
	}
	silent.Store(false)
	var back []store.Task
	eventually(t, "the task of the silent server can be claimed", func() bool {
		back = claim(t, s, w, 100)
		return len(back) > 0
	})
	if back[0].ID != there.ID || back[0].Attempt != 1 {
		t.Errorf("attempt %d of %v, want 1 of %v", back[0].Attempt, back[0].ID, there.ID)
	}
	finish(t, s, store.Outcome{Task: &back[0], State: store.Completed, Attempt: 1})
}

// A server needs more than a second for each answer. Its tasks are not only handed back.
func TestTasksOfASlowServerAreClaimed(t *testing.T) {
	s, _, wait := heldAnswers(t)
	w := worker(t, s)
	claimPromptly(t, s, w)
	var connected sync.WaitGroup
	for range 4 {
		connected.Go(func() { _, _ = s.Count(t.Context()) })
	}
	connected.Wait()
	const tasks = 3
	for range tasks {
		add(t, s, keyedInto(s, 1, nil))
	}
	wait.Store(int64(1100 * time.Millisecond))
	got := 0
	eventually(t, "all of them are claimed", func() bool {
		got += len(claim(t, s, w, 1))
		return got == tasks
	})
}
