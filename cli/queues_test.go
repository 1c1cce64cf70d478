package cli

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
)

func listed(t *testing.T, client *tusk.Client) (names []string) {
	t.Helper()
	queues, err := client.Queues(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range queues {
		names = append(names, q.Name)
	}
	return names
}

// A worker runs for a moment and is gone.
func TestAQueueStaysListedUntilItIsRemoved(t *testing.T) {
	onEachEngine(t, func(t *testing.T, client *tusk.Client) {
		o := tusk.Options{Queue: "night"}
		enqueueMany(t, client, 1, o)
		mux, done := tusk.NewMux(), make(chan struct{})
		tusk.HandleKind(mux, "echo", func(context.Context, *tusk.Task[map[string]any]) error { close(done); return nil })
		worker, err := tusk.NewWorker(client, mux, &tusk.WorkerConfig{Queues: []string{"night"}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- worker.Run(ctx) }()
		<-done
		stop()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		// A transaction in another database may delay statistics of a moment ago. Then the next leader records the
		// queue.
		ctx, stop = context.WithCancel(t.Context())
		go func() { ended <- client.Lead(ctx, nil) }()
		got := listed(t, client)
		for begun := time.Now(); len(got) == 0 && time.Since(begun) < 30*time.Second; got = listed(t, client) {
			time.Sleep(50 * time.Millisecond)
		}
		stop()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, []string{"night"}) {
			t.Fatalf("after its last task: %v", got)
		}
		if err := client.SetLimits(t.Context(), "night", tusk.Limits{PerWorker: 3}); err != nil {
			t.Fatal(err)
		}
		enqueueMany(t, client, 2, o)
		var use *tusk.QueueInUseError
		if err := client.RemoveQueue(t.Context(), "night"); !errors.As(err, &use) || use.Tasks != 2 ||
			!errors.Is(err, tusk.ErrRefused) {
			t.Fatalf("with tasks: %v", err)
		}
		operate(t, client, tusk.Filter{Queues: []string{"night"}}, tusk.Change{Op: tusk.OpCancel})
		if err := client.RemoveQueue(t.Context(), "night"); err != nil {
			t.Fatal(err)
		}
		if got := listed(t, client); len(got) > 0 {
			t.Errorf("after the removal: %v", got)
		}
	})
}

func TestQueuesRemove(t *testing.T) {
	sh := newShell(t)
	sh.must("enqueue", "echo", "{}", "--queue", "night")
	sh.fails(exitConflict, "queue_in_use", nil, "queues", "remove", "night")
	sh.must("work", "--queue", "night", "--until-empty")
	sh.must("queues", "remove", "night")
	sh.fails(exitNotFound, "not_found", nil, "queues", "remove", "nihgt")
}
