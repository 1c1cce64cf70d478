package ledgers_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/ledgers"
)

// finishedIn returns a completed task, as an archive has it, whose key belongs to a ledger.
func finishedIn(s *ledgers.Store, no int) store.Task {
	n, now := keyedInto(s, no, func(*store.NewTask) {}), time.Now().UTC().Truncate(time.Microsecond)
	return store.Task{ID: n.ID, Kind: n.Kind, Queue: n.Queue, Key: n.Key, Args: []byte("{}"),
		State: store.Completed, Attempt: 1, RunAt: now, EnqueuedAt: now, FinishedAt: now}
}

func TestATaskThatARestoreNamesTwiceIsSaidToExistInEveryLedger(t *testing.T) {
	s := open(t, three.DSN(t))
	for no := range 3 {
		one := finishedIn(s, no)
		_, exist, err := s.Restore(t.Context(), store.Record{Kind: "k", Name: one.ID.String(), Body: []byte("{}")},
			[]store.Task{one, one})
		if err != nil || !slices.Equal(exist, []store.ID{one.ID}) {
			t.Errorf("ledger %d: %v exist, want the task: %v", no, exist, err)
		}
	}
}

// The leader completes a restore that died after its first transaction. Each task goes where its key
// belongs, once: a letter that is delivered again does not bring back a task that was deleted.
func TestARestoreThatDiedIsCarriedOut(t *testing.T) {
	s := open(t, three.DSN(t))
	ctx, term := context.Background(), lead(t, s)
	var tasks []store.Task
	var ids []store.ID
	at := map[store.ID]int{}
	for no := range 3 {
		for range 2 {
			one := finishedIn(s, no)
			tasks, ids, at[one.ID] = append(tasks, one), append(ids, one.ID), no
		}
	}
	there := func() int {
		found, err := s.List(ctx, store.Filter{IDs: ids, Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	send, err := ledgers.RestoreUnsent(ctx, s, store.Record{Kind: "k", Name: "n", Body: []byte("{}")}, tasks)
	if err != nil {
		t.Fatal(err)
	}
	if n := there(); n != 2 {
		t.Errorf("before letters are delivered %d tasks are there, want those of home, 2", n)
	}
	eventually(t, "the letters are delivered", func() bool {
		time.Sleep(50 * time.Millisecond)
		_, err := s.Admit(ctx, term, 100)
		return err == nil && there() == len(tasks)
	})
	for id, no := range at {
		if got := ledgers.Where(t, s, id); got != no {
			t.Errorf("%v is in ledger %d, its key belongs to %d", id, got, no)
		}
	}
	if _, err := s.Edit(ctx, store.Edit{IDs: ids, Change: store.Change{Op: store.Delete}}); err != nil {
		t.Fatal(err)
	}
	if err := send(); err != nil {
		t.Fatal(err)
	}
	if n := there(); n != 0 {
		t.Errorf("%d tasks came back twice", n)
	}
	if left, err := s.List(ctx, store.Filter{Queues: []string{"tusk.letters"}, Limit: 10}); err != nil || len(left) != 0 {
		t.Errorf("%d letters are left, %v", len(left), err)
	}
}
