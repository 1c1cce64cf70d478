package tusk_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

func TestStoredBackoffsWithoutABaseStayValid(t *testing.T) {
	inBubble(t, "of a stage", func(t *testing.T, s *shop) {
		record := store.Record{Kind: "pipeline", Name: "old",
			Body: []byte(`[{"name":"one"},{"name":"two","backoff":{"shape":"exponential","max":"1h"}}]`)}
		if _, _, err := s.store.PutRecord(t.Context(), store.PutRecord{Record: record}); err != nil {
			t.Fatal(err)
		}
		p, err := s.client.Pipeline(t.Context(), "old")
		if err != nil {
			t.Fatal(err)
		}
		puller, end := s.pull()
		defer end()
		s.enqueue(p.Start(1), nil)
		for range 2 {
			lent, err := puller.Claim(t.Context(), tusk.Pull{Queues: p.Queues(), Wait: 10 * time.Second})
			if err != nil || len(lent) != 1 {
				t.Fatal(lent, err)
			}
			if got, err := puller.Finish(t.Context(), []tusk.Verdict{{Receipt: lent[0].Receipt}}); err != nil || got[0] != nil {
				t.Error(got, err)
			}
		}
	})
	inBubble(t, "of a task", func(t *testing.T, s *shop) {
		old := s.client.Describe(store.Task{ID: tusk.NewID(), Kind: "count", Queue: "q", Args: []byte(`{}`),
			State: store.Discarded, Settings: []byte(`{"backoff":{"shape":"constant"}}`)})
		again, err := s.client.Again(old)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.client.Enqueue(t.Context(), again.Args, again.Options); err != nil {
			t.Error(err)
		}
	})
}

func TestAWorkerRefusesAPipelineWithAnInvalidStage(t *testing.T) {
	inBubble(t, "when it is made", func(t *testing.T, s *shop) {
		p := tusk.NewPipeline("p").Stage("one", nil).Stage("two", &tusk.Options{Backoff: tusk.ConstantBackoff(0)})
		tusk.HandleStage(s.mux, p, "one", func(_ context.Context, t *tusk.Task[int]) (int, error) { return t.Args, nil })
		if _, err := tusk.NewWorker(s.client, s.mux, nil); !errors.Is(err, tusk.ErrInvalid) {
			t.Error(err)
		}
	})
}
