package tusk_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
)

func TestPipelines(t *testing.T) {
	pipeline := func() *tusk.Pipeline {
		return tusk.NewPipeline("ingest").Stage("fetch", nil).Stage("parse", &tusk.Options{MaxAttempts: 3,
			Backoff: tusk.ConstantBackoff(time.Minute)}).Stage("store", &tusk.Options{Queue: "slow"})
	}
	inBubble(t, "a task passes the stages, and each gets what the one before returned", func(t *testing.T, s *shop) {
		p := pipeline()
		tusk.HandleStage(s.mux, p, "fetch", func(_ context.Context, t *tusk.Task[int]) (string, error) {
			return fmt.Sprint("page ", t.Args), nil
		})
		tusk.HandleStage(s.mux, p, "parse", func(_ context.Context, t *tusk.Task[string]) (string, error) {
			if t.Attempt < 3 {
				return "", errors.New("not yet")
			}
			return t.Args + " parsed", nil
		})
		tusk.HandleStage(s.mux, p, "store", func(_ context.Context, t *tusk.Task[string]) (string, error) {
			return t.Args + " and stored", nil
		})
		_, stop := s.work(&tusk.WorkerConfig{Queues: p.Queues()})
		id := s.enqueue(p.Start(7), &tusk.Options{Tenant: "acme", Priority: 4, Metadata: map[string]string{"a": "b"}})
		s.await(id, tusk.StateCompleted)
		time.Sleep(3 * time.Minute)
		run, err := s.client.Workflow(context.Background(), id)
		if err != nil || !run.Done() || len(run.Tasks) != 3 {
			t.Fatalf("%+v, %v", run, err)
		}
		for i, want := range []string{"ingest.fetch", "ingest.parse", "ingest.store"} {
			if task := run.Tasks[i]; task.Kind != want || task.Tenant != "acme" || task.Priority != 4 ||
				task.Metadata["a"] != "b" {
				t.Errorf("stage %d: %+v", i, task)
			}
		}
		told, err := s.client.Pipelines(context.Background())
		if err != nil || len(told) != 1 || told[0].Name != "ingest" || len(told[0].Stages) != 3 || told[0].ToldAt.IsZero() ||
			told[0].Stages[1] != (tusk.StageInfo{Name: "parse", Kind: "ingest.parse", Queue: "ingest.parse"}) ||
			told[0].Stages[2].Queue != "slow" {
			t.Errorf("%+v, %v", told, err)
		}
		if err := s.client.RemovePipeline(context.Background(), "ingest"); err != nil {
			t.Error(err)
		}
		if err := s.client.RemovePipeline(context.Background(), "ingest"); !errors.Is(err, tusk.ErrNotFound) {
			t.Error(err)
		}
		last := run.Tasks[2]
		if last.Queue != "slow" || string(last.Detail.Output) != `"page 7 parsed and stored"` || run.Tasks[1].Attempt != 3 {
			t.Errorf("%+v %s", last, last.Detail.Output)
		}
		s.stop(stop)
	})
	inBubble(t, "a stage that there is none of leaves the output", func(t *testing.T, s *shop) {
		p := pipeline()
		tusk.HandleStage(s.mux, p, "fetch", func(_ context.Context, t *tusk.Task[int]) (string, error) {
			return "kept", tusk.GoTo("nowhere")
		})
		_, stop := s.work(&tusk.WorkerConfig{Queues: p.Queues()})
		id := s.enqueue(p.Start(1), nil)
		s.await(id, tusk.StateDiscarded)
		s.hasNoStage(id, `"kept"`)
		s.stop(stop)
	})
	inBubble(t, "a stage may go to another, and end the pipeline", func(t *testing.T, s *shop) {
		p := pipeline()
		tusk.HandleStage(s.mux, p, "fetch", func(_ context.Context, t *tusk.Task[int]) (int, error) {
			return t.Args + 1, tusk.GoTo("store")
		})
		tusk.HandleStage(s.mux, p, "parse", func(_ context.Context, t *tusk.Task[int]) (int, error) {
			return t.Args, tusk.GoTo("")
		})
		tusk.HandleStage(s.mux, p, "store", func(_ context.Context, t *tusk.Task[int]) (int, error) {
			return t.Args + 10, tusk.GoTo("parse")
		})
		_, stop := s.work(&tusk.WorkerConfig{Queues: p.Queues()})
		id := s.enqueue(p.Start(1), nil)
		time.Sleep(time.Minute)
		run, _ := s.client.Workflow(context.Background(), id)
		if len(run.Tasks) != 3 || run.Tasks[2].Kind != "ingest.parse" || string(run.Tasks[2].Detail.Output) != "12" ||
			!run.Done() {
			t.Errorf("%+v", run)
		}
		s.stop(stop)
	})
	inBubble(t, "a run that goes back for ever ends, with its output, and goes on once that is mended",
		func(t *testing.T, s *shop) {
			p := pipeline()
			var mended atomic.Bool
			tusk.HandleStage(s.mux, p, "fetch", func(_ context.Context, t *tusk.Task[int]) (int, error) {
				return t.Args + 1, nil
			})
			tusk.HandleStage(s.mux, p, "parse", func(_ context.Context, t *tusk.Task[int]) (int, error) {
				if mended.Load() {
					return t.Args, nil
				}
				return t.Args + 1, tusk.GoTo([]string{"fetch", "parse"}[t.Args%2])
			})
			tusk.HandleStage(s.mux, p, "store", func(_ context.Context, t *tusk.Task[int]) (int, error) {
				return t.Args, nil
			})
			_, stop := s.work(&tusk.WorkerConfig{Queues: p.Queues()})
			id := s.enqueue(p.Start(1), nil)
			var end tusk.TaskInfo
			for end.ID.IsZero() {
				time.Sleep(time.Minute)
				dead, err := s.client.List(context.Background(), tusk.Filter{States: []tusk.State{tusk.StateDiscarded}})
				if err != nil {
					t.Fatal(err)
				}
				if len(dead) > 0 {
					end = dead[0]
				}
			}
			got, err := s.client.Get(context.Background(), end.ID)
			if err != nil || got.Workflow != id || got.Kind != "ingest.parse" || got.Jumps != tusk.MaxJumps ||
				len(got.Detail.Output) == 0 ||
				!strings.Contains(got.Detail.Attempts[0].Error, "1000 times, which is the limit (MaxJumps)") {
				t.Fatalf("%+v, %v", got, err)
			}
			mended.Store(true)
			if err := s.client.Retry(context.Background(), end.ID); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			last, err := s.client.List(context.Background(), tusk.Filter{Kinds: []string{"ingest.store"}})
			if err != nil || len(last) != 1 || last[0].State != tusk.StateCompleted || last[0].Jumps != tusk.MaxJumps {
				t.Errorf("%+v, %v", last, err)
			}
			s.stop(stop)
		})
	inBubble(t, "mistakes in a pipeline are reported", func(t *testing.T, s *shop) {
		for name, p := range map[string]*tusk.Pipeline{
			"a bad name":    tusk.NewPipeline("No"),
			"a stage twice": tusk.NewPipeline("p").Stage("a", nil).Stage("a", nil),
			"a key":         tusk.NewPipeline("p").Stage("a", &tusk.Options{Key: "k"}),
			"no stage":      tusk.NewPipeline("p"),
		} {
			if _, err := s.client.Enqueue(context.Background(), p.Start(1), nil); !errors.Is(err, tusk.ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
			mux := tusk.NewMux()
			tusk.HandleStage(mux, p, "b", func(context.Context, *tusk.Task[int]) (int, error) { return 0, nil })
			if _, err := tusk.NewWorker(s.client, mux, nil); !errors.Is(err, tusk.ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// hasNoStage fails the test unless a task was discarded, with its output, because it went to the stage nowhere.
func (s *shop) hasNoStage(id tusk.ID, output string) {
	s.t.Helper()
	const want = `stage: "nowhere" is not in the pipeline ingest, which has fetch, parse, `
	task := s.get(id)
	if d := task.Detail; task.State != tusk.StateDiscarded || !strings.HasPrefix(d.Attempts[0].Error, want) ||
		string(d.Output) != output {
		s.t.Errorf("%v with %s: %+v", task.State, d.Output, d.Attempts)
	}
}

func TestAnUnknownStageIsNamed(t *testing.T) {
	s := newShop(t)
	for args, want := range map[tusk.Args]string{
		tusk.NewPipeline("ingest").Stage("fetch", nil).StartAt("shelve", 1): `"shelve" is not in the pipeline ingest`,
		tusk.NewPipeline("none").Start(1):                                   "not in the pipeline none",
		tusk.NewPipeline("No").Start(1):                                     `pipeline: "No" is not a name`,
	} {
		if _, err := s.client.Enqueue(context.Background(), args, nil); !errors.Is(err, tusk.ErrInvalid) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
