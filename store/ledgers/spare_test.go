package ledgers_test

import (
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/ledgers"
)

// A ledger does not answer a claim. The other one of its server answers, so its tasks are claimed meanwhile.
func TestALateLedgerHoldsUpNoOtherOfItsServer(t *testing.T) {
	h := heldAnswers(t, 4) // 2 and 3 on the second server
	w := worker(t, h)
	claimPromptly(t, h.Store, w, 2, 3)
	h.connect()
	add(t, h, keyedInto(h.Store, 0, nil))
	r := store.ClaimRequest{Worker: w, Queues: []string{"q"}, Limit: 100, Token: store.NewToken()}
	word := r.Token[:]
	h.word.Store(&word) // the ledger of the second server that is asked first does not answer
	if got, err := h.Claim(t.Context(), r); err != nil || len(got) != 1 {
		t.Fatalf("claimed %d tasks, want that of the first server, %v", len(got), err)
	}
	add(t, h, keyedInto(h.Store, 2, nil))
	add(t, h, keyedInto(h.Store, 3, nil))
	eventually(t, "a task of the second server is claimed", func() bool { return len(claim(t, h, w, 100)) > 0 })
	if !ledgers.Owes(h.Store, 1) {
		t.Error("it was claimed only after the late answer")
	}
}

// A worker with one slot ends a task. A ledger that needs it is slow. The call does not wait for that ledger for long.
func TestAnExchangeDoesNotWaitForALedgerThatNeedsItsTask(t *testing.T) {
	h := heldAnswers(t, 2)
	other := open(t, h.dsns...)
	w := worker(t, h)
	parent := keyedInto(h.Store, 0, nil)
	child := keyedInto(h.Store, 1, needs(store.CancelOnFailure, parent.ID))
	add(t, h, parent)
	add(t, h, child)
	h.connect()
	tasks := claim(t, h, w, 1)
	if len(tasks) != 1 || tasks[0].ID != parent.ID {
		t.Fatalf("claimed %v, want %v", tasks, parent.ID)
	}
	add(t, h, keyedInto(h.Store, 0, nil)) // so that the exchange claims nowhere else
	h.wait.Store(int64(3 * time.Second))
	began := time.Now()
	r := store.ClaimRequest{Worker: w, Queues: []string{"q"}, Limit: 1, Token: store.NewToken()}
	x := h.Exchange(t.Context(), store.Outcome{Task: &tasks[0], State: store.Completed, Attempt: 1}, r)
	took := time.Since(began)
	h.wait.Store(0)
	if x.FinishErr != nil || x.ClaimErr != nil || x.Lost || len(x.Tasks) != 1 {
		t.Fatalf("%+v", x)
	}
	if took > 2500*time.Millisecond {
		t.Errorf("it took %v", took)
	}
	eventually(t, "the child hears of the end", func() bool { return stateOf(t, other, child.ID) != store.Pending })
}
