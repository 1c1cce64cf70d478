package ledgers_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

// While a ledger is away, who waits for tasks of others learns of their ends.
func TestATaskIsAwaitedWhileTheLedgerOfAnotherIsAway(t *testing.T) {
	_, dsns := servers(t, 1)
	if err := divide(2, dsns...); err != nil {
		t.Fatal(err)
	}
	s, operator := open(t, dsns...), open(t, dsns...)
	client, err := tusk.NewClient(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	tasks := []store.NewTask{keyedIn(s, 0, nil), keyedIn(s, 1, nil)}
	add(t, s, tasks...)
	ended := []chan error{make(chan error, 1), make(chan error, 1)}
	for i := range tasks {
		go func() { ended[i] <- client.AwaitEnd(context.WithoutCancel(t.Context()), tasks[i].ID) }()
	}
	time.Sleep(100 * time.Millisecond) // both have been read
	if err := operator.Fence(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a list of both returns the one that can be read, and names the other", func() bool {
		found, err := s.List(t.Context(), store.Filter{IDs: []store.ID{tasks[0].ID, tasks[1].ID}})
		held := new(store.HeldError)
		return errors.Is(err, store.ErrUnavailable) && errors.As(err, &held) &&
			slices.Equal(held.Tasks, []store.ID{tasks[1].ID}) && len(found) == 1 && found[0].ID == tasks[0].ID
	})
	if _, err := client.Cancel(t.Context(), tasks[0].ID, ""); err != nil {
		t.Errorf("cancel: %v", err) // its id may give the ledger that is away
	}
	select {
	case err := <-ended[0]:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("the end of a task was not reported while the ledger of another was away")
	}
	if err := operator.Open(t.Context(), "", 1); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other is cancelled", func() bool {
		_, err := client.Cancel(t.Context(), tasks[1].ID, "")
		return err == nil
	})
	if err := <-ended[1]; err != nil {
		t.Error(err)
	}
}
