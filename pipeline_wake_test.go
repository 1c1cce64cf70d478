package tusk_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
)

// A run that waits for another one begins as soon as that has ended or has failed. Its looks do not count as attempts.
func TestARunThatWaitsForAnotherBeginsWhenThatEnds(t *testing.T) {
	ctx := context.Background()
	p := tusk.NewPipeline("ingest").Stage("fetch", nil).Stage("parse", nil).Stage("index", nil)
	start := func(s *shop, version int) {
		s.t.Helper()
		_, err := s.client.Enqueue(ctx, p.Start(version), &tusk.Options{Key: "doc-9", OnConflict: tusk.Rerun})
		if err != nil {
			s.t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		failing string
		ends    time.Duration // of the first run
	}{"completed": {"", time.Hour}, "failed": {"parse", 40 * time.Minute}} {
		inBubble(t, "when it has "+name, func(t *testing.T, s *shop) {
			began := map[string]time.Time{}
			for _, stage := range []string{"fetch", "parse", "index"} {
				tusk.HandleStage(s.mux, p, stage, func(_ context.Context, t *tusk.Task[int]) (int, error) {
					began[fmt.Sprint(stage, t.Args)] = time.Now()
					time.Sleep(20 * time.Minute)
					if stage == c.failing && t.Args == 1 {
						return 0, tusk.RetryAfter(24*time.Hour, errors.New("x"))
					}
					return t.Args, nil
				})
			}
			_, stop := s.work(&tusk.WorkerConfig{Queues: p.Queues()})
			start(s, 1)
			time.Sleep(25*time.Minute + 13*time.Second)
			start(s, 2)
			time.Sleep(3 * time.Hour)
			s.stop(stop)
			if late := began["fetch2"].Sub(began["fetch1"].Add(c.ends)); late < 0 || late > time.Second {
				t.Errorf("the second run begins %v after the end of the first", late)
			}
			stats, err := s.client.PipelineStats(ctx, "ingest", time.Now().Add(-24*time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			if n := stats[0].Ran.Count; n != 2 || stats[0].Completed != 2 {
				t.Errorf("of the first stage %d attempts are counted, and %d completed, want 2", n, stats[0].Completed)
			}
		})
	}
}

func TestAFirstStageThatSnoozesIsNotWokenByTheEndOfAnotherRun(t *testing.T) {
	p := tusk.NewPipeline("ingest").Stage("fetch", nil).Stage("parse", nil)
	inBubble(t, "which went on after it had failed", func(t *testing.T, s *shop) {
		var second []time.Duration
		begun := time.Now()
		tusk.HandleStage(s.mux, p, "fetch", func(_ context.Context, t *tusk.Task[int]) (int, error) {
			if t.Args == 2 {
				second = append(second, time.Since(begun).Round(time.Minute))
				if len(second) == 1 {
					return 0, tusk.Snooze(2 * time.Hour)
				}
			}
			return t.Args, nil
		})
		tusk.HandleStage(s.mux, p, "parse", func(_ context.Context, t *tusk.Task[int]) (int, error) {
			if t.Attempt == 1 {
				return 0, tusk.RetryAfter(time.Hour, errors.New("x"))
			}
			return t.Args, nil
		})
		_, stop := s.work(&tusk.WorkerConfig{Queues: p.Queues()})
		for version := 1; version <= 2; version++ {
			if _, err := s.client.Enqueue(t.Context(), p.Start(version), &tusk.Options{Key: "k"}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
		}
		time.Sleep(4 * time.Hour)
		s.stop(stop)
		if fmt.Sprint(second) != "[0s 2h0m0s]" {
			t.Errorf("the handler that snoozes for two hours is called after %v", second)
		}
	})
}
