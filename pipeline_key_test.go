package tusk_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

// A run keeps its key from stage to stage.
func TestOneKeyThroughAllStages(t *testing.T) {
	ctx := context.Background()
	type doc struct{ Version, Laps int }
	// pipeline has three stages of a second each; parse goes back to fetch as often as laps says.
	pipeline := func(s *shop, stages *tusk.Pipeline) (indexed *[]doc) {
		indexed = &[]doc{}
		tusk.HandleStage(s.mux, stages, "fetch", func(_ context.Context, t *tusk.Task[doc]) (doc, error) {
			time.Sleep(time.Second)
			return t.Args, nil
		})
		busy := make(chan struct{}, 1)
		tusk.HandleStage(s.mux, stages, "parse", func(_ context.Context, t *tusk.Task[doc]) (doc, error) {
			select {
			case busy <- struct{}{}:
			default:
				s.t.Error("two runs of a key are parsed at a time")
			}
			time.Sleep(time.Second)
			<-busy
			if t.Args.Laps > 0 {
				t.Args.Laps--
				return t.Args, tusk.GoTo("fetch")
			}
			return t.Args, nil
		})
		tusk.HandleStage(s.mux, stages, "index", func(_ context.Context, t *tusk.Task[doc]) (int, error) {
			*indexed = append(*indexed, t.Args) // one at a time: they share a key
			time.Sleep(time.Second)
			return 0, nil
		})
		return indexed
	}
	start := func(s *shop, p *tusk.Pipeline, d doc, source bool) tusk.Enqueued {
		s.t.Helper()
		o := &tusk.Options{Key: "doc-9", OnConflict: tusk.Rerun}
		if source {
			o.SourceTime = time.Date(2026, 1, 1, 0, 0, d.Version, 0, time.UTC)
		}
		r, err := s.client.Enqueue(ctx, p.Start(d), o)
		if err != nil {
			s.t.Fatal(err)
		}
		return r
	}
	stages := func() *tusk.Pipeline {
		return tusk.NewPipeline("ingest").Stage("fetch", nil).Stage("parse", nil).Stage("index", nil)
	}
	together := func() *tusk.Pipeline {
		one := &tusk.Options{Queue: "ingest"}
		return tusk.NewPipeline("ingest").Stage("fetch", one).Stage("parse", one).Stage("index", one)
	}
	for name, test := range map[string]struct {
		pipeline *tusk.Pipeline
		source   bool
		laps     int
	}{
		"by the times of the source":               {stages(), true, 0},
		"by when they began":                       {stages(), false, 0},
		"though the older goes back":               {stages(), true, 3},
		"though the older goes back, by beginning": {stages(), false, 3},
		"in one queue":                             {together(), true, 1},
		"in one queue, by beginning":               {together(), false, 1},
	} {
		inBubble(t, "the newest of several runs is last at every stage, "+name, func(t *testing.T, s *shop) {
			indexed := pipeline(s, test.pipeline)
			_, stop := s.work(&tusk.WorkerConfig{Queues: test.pipeline.Queues()})
			for version := 1; version <= 5; version++ {
				start(s, test.pipeline, doc{version, test.laps * (version % 2)}, test.source)
				time.Sleep(time.Duration(version%3)*700*time.Millisecond + time.Millisecond)
			}
			s.drain()
			if n := len(*indexed); n == 0 || (*indexed)[n-1].Version != 5 {
				t.Errorf("indexed %v", *indexed)
			}
			if !slices.IsSortedFunc(*indexed, func(a, b doc) int { return a.Version - b.Version }) {
				t.Errorf("an older one came after a newer one: %v", *indexed)
			}
			s.stop(stop)
		})
	}
	inBubble(t, "a run that goes back is not stale to itself, and is found by its key", func(t *testing.T, s *shop) {
		p := stages()
		indexed := pipeline(s, p)
		_, stop := s.work(&tusk.WorkerConfig{Queues: p.Queues()})
		run := start(s, p, doc{1, 2}, true)
		s.drain()
		if len(*indexed) != 1 {
			t.Errorf("indexed %v", *indexed)
		}
		tasks, err := s.store.List(ctx, store.Filter{Key: "doc-9"})
		if err != nil || len(tasks) != 7 {
			t.Errorf("%d tasks have the key, %v", len(tasks), err)
		}
		for i := range tasks {
			if tasks[i].ID != run.ID && tasks[i].Workflow != run.ID {
				t.Errorf("%s is of another run", tasks[i].Kind)
			}
		}
		if again := start(s, p, doc{1, 0}, true); again.Result != tusk.Stale || again.ID.IsZero() {
			t.Errorf("the same once more: %+v", again)
		}
		s.stop(stop)
	})
}
