package tusk_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/tuskqueue/tusk"
)

// kindsOf returns the kinds of a queue's tasks.
func (s *shop) kindsOf(queue string) (kinds []string) {
	s.t.Helper()
	tasks, err := s.client.List(context.Background(), tusk.Filter{Queues: []string{queue}, Limit: 100})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, task := range tasks {
		kinds = append(kinds, task.Kind)
	}
	return kinds
}

func TestChildrenThatNobodyWaitsForAreEnqueuedWhenTheirParentCompletes(t *testing.T) {
	aside := &tusk.Options{Queue: "aside"}
	inBubble(t, "by a plain handler", func(t *testing.T, s *shop) {
		tusk.Handle(s.mux, func(ctx context.Context, t *tusk.Task[count]) error {
			_, err := t.Spawn(ctx, count{1}, aside)
			return err
		})
		_, stop := s.work(nil)
		s.await(s.enqueue(count{}, nil), tusk.StateCompleted)
		if kinds := s.kindsOf("aside"); !slices.Equal(kinds, []string{"count"}) {
			t.Errorf("children: %v", kinds)
		}
		s.stop(stop)
	})
	inBubble(t, "not by an attempt that failed", func(t *testing.T, s *shop) {
		tusk.Handle(s.mux, func(ctx context.Context, t *tusk.Task[count]) error {
			_, err := t.Spawn(ctx, count{1}, aside)
			return errors.Join(err, errors.New("no"))
		})
		_, stop := s.work(nil)
		s.await(s.enqueue(count{}, &tusk.Options{MaxAttempts: 1}), tusk.StateDiscarded)
		if kinds := s.kindsOf("aside"); len(kinds) > 0 {
			t.Errorf("children: %v", kinds)
		}
		s.stop(stop)
	})
	pipeline := tusk.NewPipeline("p").Stage("one", nil).Stage("two", nil)
	inBubble(t, "by a stage, beside the next one", func(t *testing.T, s *shop) {
		tusk.HandleStage(s.mux, pipeline, "one", func(ctx context.Context, t *tusk.Task[int]) (int, error) {
			_, err := t.Spawn(ctx, count{1}, aside)
			return t.Args + 1, err
		})
		_, stop := s.work(&tusk.WorkerConfig{Queues: []string{"p.one"}})
		s.await(s.enqueue(pipeline.Start(1), nil), tusk.StateCompleted)
		kinds := append(s.kindsOf("aside"), s.kindsOf("p.two")...)
		if !slices.Equal(kinds, []string{"count", "p.two"}) {
			t.Errorf("child and next stage: %v", kinds)
		}
		s.stop(stop)
	})
	inBubble(t, "by a handler with WithPipeline", func(t *testing.T, s *shop) {
		if err := s.client.DefinePipeline(context.Background(), pipeline); err != nil {
			t.Fatal(err)
		}
		tusk.HandleKind(s.mux, "p.one", func(ctx context.Context, t *tusk.Task[int]) error {
			_, err := t.Spawn(ctx, count{1}, aside)
			return err
		}, tusk.WithPipeline())
		_, stop := s.work(&tusk.WorkerConfig{Queues: []string{"p.one"}})
		s.await(s.enqueue(pipeline.Start(1), nil), tusk.StateCompleted)
		kinds := append(s.kindsOf("aside"), s.kindsOf("p.two")...)
		if !slices.Equal(kinds, []string{"count", "p.two"}) {
			t.Errorf("child and next stage: %v", kinds)
		}
		s.stop(stop)
	})
}
