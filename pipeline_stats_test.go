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
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

func TestPipelineStats(t *testing.T) {
	ctx := context.Background()
	pipeline := tusk.NewPipeline("ingest").Stage("fetch", nil).
		Stage("parse", &tusk.Options{Queue: "shared", MaxAttempts: 100,
			Backoff: tusk.ConstantBackoff(10 * time.Second)}).Stage("store", nil)
	begin := func(s *shop, parse error, queues ...string) (stop func() error) {
		s.t.Helper()
		tusk.HandleStage(s.mux, pipeline, "fetch", func(_ context.Context, t *tusk.Task[int]) (int, error) {
			time.Sleep(time.Second)
			return t.Args, nil
		})
		tusk.HandleStage(s.mux, pipeline, "parse", func(_ context.Context, t *tusk.Task[int]) (int, error) {
			return t.Args, parse
		})
		tusk.HandleStage(s.mux, pipeline, "store", func(_ context.Context, t *tusk.Task[int]) (int, error) {
			return t.Args, nil
		})
		_, stop = s.work(&tusk.WorkerConfig{Queues: queues})
		for i := range 20 {
			s.enqueue(pipeline.Start(i), nil)
		}
		s.enqueue(count{}, &tusk.Options{Queue: "shared", Delay: 1000 * time.Hour}) // not of the pipeline
		time.Sleep(3 * time.Minute)
		return stop
	}
	stats := func(s *shop) []tusk.StageStats {
		s.t.Helper()
		stages, err := s.client.PipelineStats(ctx, "ingest", time.Now().Add(-time.Hour))
		if err != nil || len(stages) != 3 {
			s.t.Fatal(stages, err)
		}
		return stages
	}
	inBubble(t, "each stage has its own", func(t *testing.T, s *shop) {
		stop := begin(s, nil, pipeline.Queues()...)
		for i, stage := range stats(s) {
			if stage.Completed != 20 || stage.Stuck != "" || len(stage.Tasks) != 0 || stage.Waited.Count != 20 {
				t.Errorf("%+v", stage)
			}
			if mean := stage.Ran.Mean(); (i == 0) != (mean > 500*time.Millisecond) {
				t.Errorf("%s ran for %v", stage.Name, mean)
			}
		}
		s.stop(stop)
	})
	for name, c := range map[string]struct {
		queues []string
		parse  error
		pause  bool
		at     int
		want   string
	}{
		"without a worker": {[]string{"ingest.fetch", "shared"}, nil, false, 2, "no worker takes from its queue"},
		"whose tasks fail": {pipeline.Queues(), errors.New("no"), false, 1, "attempts failed"},
		"that was paused":  {pipeline.Queues(), nil, true, 0, "its queue is paused"},
	} {
		inBubble(t, "a stage "+name+" is seen to be stuck, and no other", func(t *testing.T, s *shop) {
			if c.pause {
				if err := s.client.PauseQueue(ctx, pipeline.Queues()[0]); err != nil {
					t.Fatal(err)
				}
			}
			stop := begin(s, c.parse, c.queues...)
			defer func() { s.stop(stop) }()
			for i, stage := range stats(s) {
				if (i == c.at) != (stage.Stuck != "") || i == c.at && !strings.Contains(stage.Stuck, c.want) {
					t.Errorf("%s: %q: %+v", stage.Name, stage.Stuck, stage.Tasks)
				}
			}
		})
	}
	inBubble(t, "a stage whose tasks are due and do not run is stuck though a worker is there",
		func(t *testing.T, s *shop) {
			defer func(stop func() error) { s.stop(stop) }(begin(s, nil, "shared", "ingest.store"))
			id := tusk.NewID()
			if _, err := s.store.Extend(ctx, store.Beat{Worker: store.Worker{ID: id, Queues: []string{"ingest.fetch"}},
				TTL: time.Hour}); err != nil {
				t.Fatal(err)
			} // a worker that claims nothing
			if got := stats(s)[0].Stuck; !strings.Contains(got, "nothing of it has run for 3m0s") {
				t.Error(got)
			}
		})
	inBubble(t, "one that nobody told of is not found", func(t *testing.T, s *shop) {
		if _, err := s.client.PipelineStats(ctx, "none", time.Time{}); !errors.Is(err, tusk.ErrNotFound) {
			t.Error(err)
		}
	})
}

func ExampleClient_PipelineStats() {
	client, mux := newClient(), tusk.NewMux()
	p := tusk.NewPipeline("greeting").Stage("compose", nil).Stage("send", nil)
	tusk.HandleStage(mux, p, "compose", func(ctx context.Context, t *tusk.Task[string]) (string, error) {
		return "hello " + t.Args, nil
	})
	ctx, cancel := context.WithCancel(context.Background())
	worker, _ := tusk.NewWorker(client, mux, &tusk.WorkerConfig{Queues: p.Queues()[:1]}) // nobody runs the stage send
	done := make(chan error)
	go func() { done <- worker.Run(ctx) }()
	_, _ = client.Enqueue(ctx, p.Start("Ada"), nil)
	stages, _ := client.PipelineStats(ctx, "greeting", time.Now().Add(-time.Hour))
	for len(stages) == 0 || stages[1].Tasks[tusk.StateAvailable] == 0 {
		time.Sleep(time.Millisecond)
		stages, _ = client.PipelineStats(ctx, "greeting", time.Now().Add(-time.Hour))
	}
	for _, s := range stages {
		fmt.Println(s.Name, "completed", s.Completed, "available", s.Tasks[tusk.StateAvailable])
	}
	cancel()
	<-done
	// Output:
	// compose completed 1 available 0
	// send completed 0 available 1
}

// asked is a store that counts queries.
type asked struct {
	store.Store
	n atomic.Int64
}

func (a *asked) Count(ctx context.Context) ([]store.Count, error) {
	a.n.Add(1)
	return a.Store.Count(ctx)
}

func (a *asked) Stats(ctx context.Context, f store.StatsFilter) ([]store.Stat, error) {
	a.n.Add(1)
	return a.Store.Stats(ctx, f)
}

func (a *asked) List(ctx context.Context, f store.Filter) ([]store.Task, error) {
	a.n.Add(1)
	return a.Store.List(ctx, f)
}

func (a *asked) Workers(ctx context.Context) ([]store.Worker, error) {
	a.n.Add(1)
	return a.Store.Workers(ctx)
}

func (a *asked) Records(ctx context.Context, f store.RecordFilter) ([]store.Record, error) {
	a.n.Add(1)
	return a.Store.Records(ctx, f)
}

func TestManyPipelinesAskNoMoreThanOne(t *testing.T) {
	s := &asked{Store: memory.New()}
	client, err := tusk.NewClient(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(pipelines int) int64 {
		mux := tusk.NewMux()
		for i := range pipelines {
			p := tusk.NewPipeline(fmt.Sprintf("p%d", i)).Stage("one", nil).Stage("two", &tusk.Options{Queue: "shared"})
			tusk.HandleStage(mux, p, "one", func(context.Context, *tusk.Task[int]) (int, error) { return 0, nil })
		}
		worker, err := tusk.NewWorker(client, mux, &tusk.WorkerConfig{Queues: []string{"p0.one"}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- worker.Run(ctx) }()
		var stats map[string][]tusk.StageStats
		for len(stats) < pipelines {
			if stats, err = client.AllPipelineStats(t.Context(), time.Now().Add(-time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
		cancel()
		<-done
		before := s.n.Load()
		if stats, err = client.AllPipelineStats(t.Context(), time.Now().Add(-time.Hour)); err != nil ||
			len(stats["p0"]) != 2 {
			t.Fatal(stats, err)
		}
		return s.n.Load() - before
	}
	if one, many := ask(1), ask(20); many != one {
		t.Errorf("%d questions for 20 pipelines, %d for one", many, one)
	}
}
