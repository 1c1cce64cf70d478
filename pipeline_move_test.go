package tusk_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
)

const ingestText = `{"stages":[
	{"name":"fetch"},
	{"name":"parse","max_attempts":2,"timeout":"1m","backoff":{"shape":"constant","base":"90s"},"priority":-3},
	{"name":"index","queue":"slow","deadline_in":"7d"}]}`

// define stores the pipeline ingest, as an operator would.
func (s *shop) define(text string) *tusk.Pipeline {
	s.t.Helper()
	p, err := tusk.ParsePipeline("ingest", []byte(text))
	if err == nil {
		err = s.client.DefinePipeline(context.Background(), p)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return p
}

func TestStagesInAnyLanguage(t *testing.T) {
	ctx := context.Background()
	inBubble(t, "a stage that was lent goes on as one in Go does", func(t *testing.T, s *shop) {
		s.define(ingestText)
		p, err := s.client.Pipeline(ctx, "ingest")
		if err != nil {
			t.Fatal(err)
		}
		tusk.HandleFunc(s.mux, func(context.Context, count) error { return nil })
		_, stop := s.work(&tusk.WorkerConfig{Queues: []string{"others"}}) // the leader
		puller := s.client.NewPuller()
		work, cancel := context.WithCancel(ctx)
		done := make(chan error)
		go func() { done <- puller.Run(work) }()
		id := s.enqueue(p.Start("doc"), &tusk.Options{Tenant: "acme", Tags: []string{"a"},
			Metadata: map[string]string{"m": "1"}})
		pull := func(queue string) tusk.Lent {
			t.Helper()
			lent, err := puller.Claim(ctx, tusk.Pull{Queues: []string{queue}, Wait: 10 * time.Second})
			if err != nil || len(lent) != 1 {
				t.Fatalf("%v, %v", lent, err)
			}
			return lent[0]
		}
		finish := func(v tusk.Verdict) {
			t.Helper()
			if errs, err := puller.Finish(ctx, []tusk.Verdict{v}); err != nil || errs[0] != nil {
				t.Fatal(errs, err)
			}
		}
		first := pull("ingest.fetch")
		if string(first.TaskInfo.Args) != `"doc"` {
			t.Errorf("%s", first.TaskInfo.Args)
		}
		finish(tusk.Verdict{Receipt: first.Receipt, Output: json.RawMessage(`{"page": 1}`)})
		second := pull("ingest.parse")
		if i := second.TaskInfo; string(i.Args) != `{"page":1}` || i.Tenant != "acme" || i.Tags[0] != "a" ||
			i.Metadata["m"] != "1" || i.Priority != -3 ||
			i.MaxAttempts != 2 || i.Timeout != time.Minute || i.Backoff.Base != 90*time.Second || i.Workflow != id {
			t.Errorf("%+v", i)
		}
		finish(tusk.Verdict{Receipt: second.Receipt, Err: errors.New("not yet")})
		time.Sleep(2 * time.Minute)
		finish(tusk.Verdict{Receipt: pull("ingest.parse").Receipt, Err: tusk.GoTo("fetch"), Output: json.RawMessage(`2`)})
		again := pull("ingest.fetch")
		finish(tusk.Verdict{Receipt: again.Receipt, Err: tusk.GoTo("index")})
		last := pull("slow")
		if string(last.TaskInfo.Args) != `{}` || last.Deadline.Sub(last.EnqueuedAt) != 7*24*time.Hour {
			t.Errorf("%s, %v", last.TaskInfo.Args, last.Deadline)
		}
		finish(tusk.Verdict{Receipt: last.Receipt, Output: json.RawMessage(`"done"`)})
		run, err := s.client.Workflow(ctx, id)
		if err != nil || !run.Done() || len(run.Tasks) != 4 || string(run.Tasks[3].Detail.Output) != `"done"` {
			t.Errorf("%+v, %v", run, err)
		}
		ends := s.enqueue(p.StartAt("parse", 1), nil)
		finish(tusk.Verdict{Receipt: pull("ingest.parse").Receipt, Err: tusk.GoTo("")})
		if run, _ := s.client.Workflow(ctx, ends); !run.Done() || len(run.Tasks) != 1 {
			t.Errorf("%+v", run)
		}
		id = s.enqueue(p.StartAt("parse", 1), nil)
		refused := tusk.Verdict{Receipt: pull("ingest.parse").Receipt, Err: tusk.GoTo("nowhere")}
		var why *tusk.InvalidError
		if errs, err := puller.Finish(ctx, []tusk.Verdict{refused}); err != nil || !errors.As(errs[0], &why) ||
			why.Code != "unknown_stage" {
			t.Error(errs, err)
		}
		if s.get(id).State != tusk.StateRunning {
			t.Error("it was ended although its verdict was refused")
		}
		finish(tusk.Verdict{Receipt: refused.Receipt, Err: tusk.GoTo("")})
		cancel()
		<-done
		s.stop(stop)
	})
	inBubble(t, "a handler for somebody else's code, too", func(t *testing.T, s *shop) {
		p := s.define(ingestText)
		passes := func(ctx context.Context, t *tusk.Task[json.RawMessage]) error { return t.RecordOutput(t.Args) }
		tusk.HandleKind(s.mux, "ingest.fetch", passes, tusk.WithPipeline())
		tusk.HandleKind(s.mux, "ingest.parse", func(_ context.Context, t *tusk.Task[json.RawMessage]) error {
			return tusk.GoTo("index")
		}, tusk.WithPipeline())
		tusk.HandleKind(s.mux, "ingest.index", passes, tusk.WithPipeline())
		tusk.HandleKind(s.mux, "of.none", passes, tusk.WithPipeline())
		_, stop := s.work(&tusk.WorkerConfig{Queues: append(p.Queues(), "default")})
		id := s.enqueue(p.Start(7), nil)
		alone := s.enqueue(tusk.RawArgs{Name: "of.none", JSON: json.RawMessage("1")}, nil)
		s.await(alone, tusk.StateCompleted)
		time.Sleep(time.Minute)
		run, err := s.client.Workflow(ctx, id)
		if err != nil || !run.Done() || len(run.Tasks) != 3 || string(run.Tasks[1].Args) != "7" ||
			string(run.Tasks[2].Args) != "{}" {
			t.Errorf("%+v, %v", run, err)
		}
		s.stop(stop)
	})
	inBubble(t, "a new definition holds for what is under way", func(t *testing.T, s *shop) {
		p := s.define(ingestText)
		tusk.HandleKind(s.mux, "ingest.fetch", func(context.Context, *tusk.Task[int]) error { return nil },
			tusk.WithPipeline())
		id := s.enqueue(p.Start(7), nil)
		s.define(`{"stages":[{"name":"fetch"},{"name":"store","queue":"slow"}]}`)
		_, stop := s.work(&tusk.WorkerConfig{Queues: p.Queues()})
		s.await(id, tusk.StateCompleted)
		if run, _ := s.client.Workflow(ctx, id); len(run.Tasks) != 2 || run.Tasks[1].Kind != "ingest.store" {
			t.Errorf("%+v", run)
		}
		if _, err := s.client.Pipeline(ctx, "none"); !errors.Is(err, tusk.ErrNotFound) {
			t.Error(err)
		}
		s.stop(stop)
	})
}

func TestDefinitionsThatAreRefused(t *testing.T) {
	for text, code := range map[string]string{
		`{"stages":[]}`:                                           "out_of_range",
		`{}`:                                                      "out_of_range",
		`[]`:                                                      "invalid_value",
		`{"stages":[{"name":"a"}]} 1`:                             "invalid_json",
		`{"stages":[{"name":"a","kin":"b"}]}`:                     "unknown_field",
		`{"stages":[{"name":"a","kind":"b"}]}`:                    "not_for_stages",
		`{"stages":[{"name":"a"},{"name":"a"}]}`:                  "duplicate_stage",
		`{"stages":[{"name":"A b"}]}`:                             "invalid_name",
		`{"stages":[{"name":"a","timeout":"soon"}]}`:              "invalid_duration",
		`{"stages":[{"name":"a","max_attempts":-1}]}`:             "out_of_range",
		`{"stages":[{"name":"a","backoff":{"shape":"up"}}]}`:      "invalid_backoff",
		`{"stages":[{"name":"a","backoff":"up:1s"}]}`:             "invalid_value",
		`{"stages":[{"name":"a","backof":"constant:1s"}]}`:        "unknown_field",
		`{"stages":[{"name":"a","backoff":7}]}`:                   "invalid_value",
		`{"stages":[{"name":"a","backoff":"exponential:1h:1s"}]}`: "invalid_value",
		`{"stages":[{"name":"a","backoff":{"shape":"exponential","base":"1h","max":"1s"}}]}`: "out_of_range",
		`{"stages":[{"name":"a","queue":"no queue at all"}]}`:                                "invalid_name",
	} {
		_, err := tusk.ParsePipeline("ingest", []byte(text))
		var problem *tusk.InvalidError
		if !errors.As(err, &problem) || problem.Code != code {
			t.Errorf("%s: %v, want %s", text, err, code)
		}
	}
}
