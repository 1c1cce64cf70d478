package tusk_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

// A run keeps its key from stage to stage.
func TestOneKeyThroughAllStages(t *testing.T) {
	ctx := context.Background()
	type doc struct{ Version, Laps int }
	// pipeline has three stages of a second each. parse goes back to fetch as often as laps says.
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
			*indexed = append(*indexed, t.Args) // no lock: they share a key, so one runs at a time
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

// A document that changes while a run of it is anywhere in the pipeline passes it again, after that run.
func TestARerunFollowsTheRunThatIsUnderWay(t *testing.T) {
	ctx := context.Background()
	names := []string{"fetch", "parse", "index"}
	p := tusk.NewPipeline("ingest").Stage("fetch", nil).Stage("parse", nil).Stage("index", nil)
	start := func(s *shop, stage string, version int) tusk.Enqueued {
		s.t.Helper()
		r, err := s.client.Enqueue(ctx, p.StartAt(stage, version), &tusk.Options{Key: "doc-9", OnConflict: tusk.Rerun,
			SourceTime: time.Date(2026, 1, 1, 0, 0, version, 0, time.UTC)})
		if err != nil {
			s.t.Fatal(err)
		}
		return r
	}
	// handle registers stages that take a minute each and note their work, for example as "parse 1".
	handle := func(s *shop, did *[]string, failing string) {
		var at atomic.Int64
		for _, stage := range names {
			tusk.HandleStage(s.mux, p, stage, func(_ context.Context, t *tusk.Task[int]) (int, error) {
				if at.Add(1) > 1 {
					s.t.Error("two stages of a document run at a time")
				}
				defer at.Add(-1)
				*did = append(*did, fmt.Sprint(stage, " ", t.Args))
				time.Sleep(time.Minute)
				if stage == failing && t.Args == 1 {
					return 0, tusk.RetryAfter(time.Hour, errors.New("not yet"))
				}
				return t.Args, nil
			})
		}
	}
	whole := func(versions ...int) (all []string) {
		for _, v := range versions {
			for _, stage := range names {
				all = append(all, fmt.Sprint(stage, " ", v))
			}
		}
		return all
	}
	for i, stage := range names {
		inBubble(t, "while it is at "+stage, func(t *testing.T, s *shop) {
			var did []string
			handle(s, &did, "")
			_, stop := s.work(&tusk.WorkerConfig{Queues: p.Queues()})
			start(s, "fetch", 1)
			time.Sleep(time.Duration(i)*time.Minute + 10*time.Second)
			second := start(s, "fetch", 2)
			for version := 3; version <= 5; version++ {
				time.Sleep(5 * time.Second)
				if r := start(s, "fetch", version); r.ID != second.ID {
					t.Errorf("version %d is another run than the one that waits: %+v", version, r)
				}
			}
			s.drain()
			if !slices.Equal(did, whole(1, 5)) {
				t.Errorf("did %q", did)
			}
			if first := s.get(second.ID); first.Attempt != 1 {
				t.Errorf("to wait has cost %d attempts", first.Attempt-1)
			}
			s.stop(stop)
		})
	}
	inBubble(t, "but waits for no stage that failed", func(t *testing.T, s *shop) {
		var did []string
		handle(s, &did, "parse")
		_, stop := s.work(&tusk.WorkerConfig{Queues: p.Queues()})
		start(s, "fetch", 1)
		time.Sleep(90 * time.Second) // at parse, which fails half a minute later and is retried after an hour
		start(s, "fetch", 2)
		time.Sleep(5 * time.Minute)
		s.drain()
		if want := append([]string{"fetch 1", "parse 1"}, whole(2)...); !slices.Equal(did, want) {
			t.Errorf("did %q", did)
		}
		s.stop(stop)
	})
	inBubble(t, "though a look misses a run that moves on", func(t *testing.T, s *shop) {
		blind := &blinking{Store: s.store}
		s.store, s.client = blind, clientOf(t, blind)
		var did []string
		handle(s, &did, "")
		_, stop := s.work(&tusk.WorkerConfig{Queues: p.Queues()})
		start(s, "fetch", 1)
		time.Sleep(90 * time.Second)
		start(s, "fetch", 2)
		s.drain()
		if !slices.Equal(did, whole(1, 2)) {
			t.Errorf("did %q", did)
		}
		s.stop(stop)
	})
	inBubble(t, "of two that begin at once at different stages one waits", func(t *testing.T, s *shop) {
		var did []string
		handle(s, &did, "")
		start(s, "fetch", 1)
		time.Sleep(time.Millisecond)
		start(s, "index", 2)
		_, stop := s.work(&tusk.WorkerConfig{Queues: p.Queues()})
		s.drain()
		if want := []string{"fetch 1", "parse 1", "index 2"}; !slices.Equal(did, want) {
			t.Errorf("did %q", did)
		}
		s.stop(stop)
	})
	inBubble(t, "though its stages are lent", func(t *testing.T, s *shop) {
		s.define(ingestText)
		tusk.HandleFunc(s.mux, func(context.Context, count) error { return nil })
		_, stop := s.work(&tusk.WorkerConfig{Queues: []string{"others"}}) // the leader
		puller := s.client.NewPuller()
		work, cancel := context.WithCancel(ctx)
		done := make(chan error)
		go func() { done <- puller.Run(work) }()
		pull := func(queue string, wait time.Duration) []tusk.Lent {
			t.Helper()
			lent, err := puller.Claim(ctx, tusk.Pull{Queues: []string{queue}, Wait: wait})
			if err != nil {
				t.Fatal(err)
			}
			return lent
		}
		finish := func(lent []tusk.Lent) {
			t.Helper()
			if len(lent) != 1 {
				t.Fatal(lent)
			}
			done := tusk.Verdict{Receipt: lent[0].Receipt, Output: lent[0].TaskInfo.Args}
			if errs, err := puller.Finish(ctx, []tusk.Verdict{done}); err != nil || errs[0] != nil {
				t.Fatal(errs, err)
			}
		}
		time.Sleep(time.Second)
		start(s, "fetch", 1)
		finish(pull("ingest.fetch", 15*time.Second))
		start(s, "fetch", 2)
		if lent := pull("ingest.fetch", 15*time.Second); len(lent) > 0 {
			t.Errorf("version %s began while another was at parse", lent[0].TaskInfo.Args)
		}
		finish(pull("ingest.parse", 15*time.Second))
		finish(pull("slow", 15*time.Second))
		lent := pull("ingest.fetch", 15*time.Second)
		if finish(lent); string(lent[0].TaskInfo.Args) != "2" {
			t.Errorf("%s", lent[0].TaskInfo.Args)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		s.stop(stop)
	})
	inBubble(t, "a start whose time is yet to come is not waited for", func(t *testing.T, s *shop) {
		var did []string
		handle(s, &did, "")
		_, stop := s.work(&tusk.WorkerConfig{Queues: p.Queues()})
		if _, err := s.client.Enqueue(ctx, p.Start(1), &tusk.Options{Key: "doc-9", Delay: 24 * time.Hour}); err != nil {
			t.Fatal(err)
		}
		start(s, "index", 2)
		time.Sleep(2 * time.Minute)
		s.stop(stop)
		if !slices.Equal(did, []string{"index 2"}) {
			t.Errorf("%q", did)
		}
	})
}

// blinking is a store that does not see a key in every other look.
type blinking struct {
	store.Store
	looks atomic.Int64
}

func (b *blinking) List(ctx context.Context, f store.Filter) ([]store.Task, error) {
	if f.Key != "" && b.looks.Add(1)%2 == 1 {
		return nil, nil
	}
	return b.Store.List(ctx, f)
}
