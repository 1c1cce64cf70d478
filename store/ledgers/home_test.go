package ledgers_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/ledgers"
)

// TestTasksAreStoredAndRunWhileHomeIsAway loses the server that has the home ledger, where limits and other settings
// are, for longer than a client uses limits without reading them again.
func TestTasksAreStoredAndRunWhileHomeIsAway(t *testing.T) {
	all, dsns := servers(t, 2)
	if err := divide(2, dsns...); err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	client, err := tusk.NewClient(open(t, dsns...), nil)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	ran := map[tusk.ID]bool{}
	mux := tusk.NewMux()
	tusk.Handle(mux, func(_ context.Context, task *tusk.Task[sleep]) error {
		mu.Lock()
		defer mu.Unlock()
		ran[task.ID] = true
		return nil
	})
	w, err := tusk.NewWorker(client, mux, nil)
	if err != nil {
		t.Fatal(err)
	}
	working, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(working) }()
	t.Cleanup(func() {
		stop()
		// A worker that stops while home is away says that it could not sign off.
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, store.ErrUnavailable) {
			t.Error(err)
		}
	})
	enqueue := func() tusk.ID {
		t.Helper()
		r, err := client.Enqueue(ctx, sleep{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return r.ID
	}
	runs := func(id tusk.ID) {
		t.Helper()
		eventually(t, "the task runs", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return ran[id]
		})
	}
	runs(enqueue())
	if err := all[0].Kill(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		enqueue()
	}
	runs(enqueue())
	if err := all[0].Run(); err != nil {
		t.Fatal(err)
	}
	runs(enqueue()) // while it starts, too
}

// TestTasksGoElsewhereWhileALedgerSettles has a server come back. Workers claim there only after their next beat.
func TestTasksGoElsewhereWhileALedgerSettles(t *testing.T) {
	all, dsns := servers(t, 2)
	if err := divide(2, dsns...); err != nil {
		t.Fatal(err)
	}
	s := open(t, dsns...)
	if err := all[1].Kill(); err != nil {
		t.Fatal(err)
	}
	awaitAway(t, s)
	began := time.Now()
	if err := all[1].Run(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is back", func() bool {
		_, err := s.Count(context.Background())
		return err == nil
	})
	for range 20 {
		add(t, s, newTask(nil))
	}
	n, err := ledgers.CountIn(context.Background(), s, 1, store.Filter{Limit: 100})
	if err != nil || n > 0 && time.Since(began) < ledgers.SettlesIn {
		t.Errorf("%d tasks are in a ledger that has just come back, %v", n, err)
	}
}
