package tusk_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

func TestHooksSeeEveryTaskThatAClientStores(t *testing.T) {
	inBubble(t, "children, stages and runs of schedules", func(t *testing.T, s *shop) {
		var seen []string
		refuses := ""
		client, err := tusk.NewClient(s.store, &tusk.ClientConfig{Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
			BeforeEnqueue: []func(context.Context, []store.NewTask) error{
				func(_ context.Context, tasks []store.NewTask) error {
					for _, n := range tasks {
						if seen = append(seen, n.Kind); n.Kind == refuses {
							return errors.New("not today")
						}
					}
					return nil
				}}})
		if err != nil {
			t.Fatal(err)
		}
		s.client = client
		p := tusk.NewPipeline("p").Stage("one", nil).Stage("two", nil)
		tusk.HandleStage(s.mux, p, "one", func(ctx context.Context, t *tusk.Task[int]) (int, error) {
			_, err := t.Spawn(ctx, count{1}, nil)
			return t.Args, err
		})
		_, stop := s.work(&tusk.WorkerConfig{Queues: []string{"p.one"}})
		s.await(s.enqueue(p.Start(1), nil), tusk.StateCompleted)
		s.stop(stop)
		want := []string{"p.one", "count", "p.two"}
		if !slices.Equal(seen, want) {
			t.Errorf("%q, want %q", seen, want)
		}

		seen = nil
		err = client.PutSchedule(t.Context(), tusk.Schedule{Name: "s", Spec: "@every 1h", Args: count{1}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.RunSchedule(t.Context(), "s"); err != nil {
			t.Error(err)
		}
		now := time.Now()
		if _, err := client.BackfillSchedule(t.Context(), "s", now.Add(-2*time.Hour), now); err != nil || len(seen) < 3 {
			t.Errorf("of a schedule: %q, %v", seen, err)
		}

		// A worker elsewhere: the next stage fails its attempt, and does not stay lent.
		if err := client.DefinePipeline(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		refuses = "p.two"
		puller, end := s.pull()
		defer end()
		id := s.enqueue(p.Start(1), nil)
		lent, err := puller.Claim(t.Context(), tusk.Pull{Queues: []string{"p.one"}, Wait: 10 * time.Second})
		if err != nil || len(lent) != 1 {
			t.Fatal(lent, err)
		}
		results, err := puller.Finish(t.Context(), []tusk.Verdict{{Receipt: lent[0].Receipt}})
		if err != nil || results[0] != nil {
			t.Error(results, err)
		}
		if got := s.get(id); got.State != tusk.StateRetryable || len(got.Detail.Attempts) != 1 ||
			got.Detail.Attempts[0].Error != "before enqueue: not today" {
			t.Errorf("%v %+v", got.State, got.Detail.Attempts)
		}
	})
}

func TestACallerWhoGoesAwayDuringAHookFailsNoAttempt(t *testing.T) {
	inBubble(t, "the repeated verdict counts", func(t *testing.T, s *shop) {
		leave := func() {}
		client, err := tusk.NewClient(s.store, &tusk.ClientConfig{Logger: slog.New(slog.DiscardHandler),
			BeforeEnqueue: []func(context.Context, []store.NewTask) error{
				func(ctx context.Context, _ []store.NewTask) error { leave(); return ctx.Err() }}})
		if err != nil {
			t.Fatal(err)
		}
		s.client = client
		p := s.define(`{"stages":[{"name":"one"},{"name":"two"}]}`)
		puller, end := s.pull()
		defer end()
		id := s.enqueue(p.Start(1), nil)
		lent, err := puller.Claim(t.Context(), tusk.Pull{Queues: p.Queues(), Wait: 10 * time.Second})
		if err != nil || len(lent) != 1 {
			t.Fatal(lent, err)
		}
		verdict := []tusk.Verdict{{Receipt: lent[0].Receipt}}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		leave = cancel
		if results, err := puller.Finish(ctx, verdict); !errors.Is(err, context.Canceled) {
			t.Errorf("%v, %v", results, err)
		}
		if results, err := puller.Finish(t.Context(), verdict); err != nil || results[0] != nil {
			t.Errorf("repeated: %v, %v", results, err)
		}
		if got := s.get(id); got.State != tusk.StateCompleted {
			t.Errorf("%v %+v", got.State, got.Detail.Attempts)
		}
	})
}

func TestAHookCannotGiveAChildAnotherTenantOrAKey(t *testing.T) {
	for name, change := range map[string]func(*store.NewTask){
		"tenant": func(n *store.NewTask) { n.Tenant = "other" },
		"key":    func(n *store.NewTask) { n.Key = "k" },
	} {
		inBubble(t, name, func(t *testing.T, s *shop) {
			client, err := tusk.NewClient(s.store, &tusk.ClientConfig{Logger: slog.New(slog.DiscardHandler),
				BeforeEnqueue: []func(context.Context, []store.NewTask) error{
					func(_ context.Context, tasks []store.NewTask) error {
						if tasks[0].Queue == "aside" {
							change(&tasks[0])
						}
						return nil
					}}})
			if err != nil {
				t.Fatal(err)
			}
			s.client = client
			refused := make(chan error, 1)
			tusk.Handle(s.mux, func(ctx context.Context, t *tusk.Task[count]) error {
				_, err := t.Spawn(ctx, count{1}, &tusk.Options{Queue: "aside"})
				refused <- err
				return nil
			})
			_, stop := s.work(nil)
			s.await(s.enqueue(count{}, nil), tusk.StateCompleted)
			if err := <-refused; !errors.Is(err, tusk.ErrInvalid) {
				t.Error(err)
			}
			s.stop(stop)
		})
	}
}
