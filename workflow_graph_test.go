package tusk_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store/memory"
)

func TestWorkflowGraphs(t *testing.T) {
	ctx := context.Background()
	inBubble(t, "bad graphs are refused, by name", func(t *testing.T, s *shop) {
		cycle, self, double, stranger, tenants, large, bad := tusk.NewWorkflow(), tusk.NewWorkflow(), tusk.NewWorkflow(),
			tusk.NewWorkflow(), tusk.NewWorkflow(), tusk.NewWorkflow(), tusk.NewWorkflow()
		a := cycle.Task("a", count{}, nil)
		b := cycle.Task("b", count{}, nil).After(a)
		a.After(cycle.Task("c", count{}, nil).After(b))
		one := self.Task("one", count{}, nil)
		one.After(one)
		double.Task("x", count{}, nil)
		double.Task("x", count{}, nil)
		stranger.Task("x", count{}, nil).After(b)
		tenants.Task("x", count{}, &tusk.Options{Tenant: "t1"})
		tenants.Task("y", count{}, &tusk.Options{Tenant: "t2"})
		for i := range tusk.MaxWorkflow + 1 {
			large.Task(fmt.Sprint("t", i), count{}, nil)
		}
		wide := tusk.NewWorkflow()
		roots := make([]*tusk.Node, 100)
		for i := range roots {
			roots[i] = wide.Task(fmt.Sprint("root", i), count{}, nil)
		}
		for i := range tusk.MaxWorkflowEdges/len(roots) + 1 {
			wide.Task(fmt.Sprint("leaf", i), count{}, nil).After(roots...)
		}
		bad.Task("x", count{}, &tusk.Options{Queue: "No Good"})
		for says, w := range map[string]*tusk.Workflow{"cycle": cycle, "one after one": self, "two tasks": double,
			"not in the workflow": stranger,
			"tenant":              tenants, "10000": large, "more than 50000 dependencies": wide, "No Good": bad,
			"no tasks": tusk.NewWorkflow()} {
			_, err := s.client.EnqueueWorkflow(ctx, w)
			if !errors.Is(err, tusk.ErrInvalid) || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v", says, err)
			}
		}
		if tasks, _ := s.client.List(ctx, tusk.Filter{}); len(tasks) != 0 {
			t.Errorf("%d tasks were stored", len(tasks))
		}
	})
	inBubble(t, "JSON makes the same graph, and its mistakes are named", func(t *testing.T, s *shop) {
		w, err := tusk.ParseWorkflow([]byte(
			`{"tasks":[{"name":"b","kind":"count","after":["a"],"on_failure":"wait","timeout":"30s"},` +
				`{"name":"a","kind":"count","args":{"N":3}}]}`))
		if err != nil {
			t.Fatal(err)
		}
		run, err := s.client.EnqueueWorkflow(ctx, w)
		if err != nil {
			t.Fatal(err)
		}
		if b := s.get(run.Tasks["b"]); b.State != tusk.StatePending || b.Timeout != 30*time.Second ||
			b.Detail.Needs[0].OnFailure != tusk.WaitOnFailure {
			t.Errorf("%+v", b)
		}
		w, err = tusk.ParseWorkflow(
			[]byte(
				`{"tasks":[{"name":"a","kind":"count","args":{"N":1},"weight":5,"backoff":"constant:7s",
			"deadline_in":"1h","expires_in":"30m","partition":"p","ephemeral":true},
			{"name":"b","kind":"count","args":{"N":2},"backoff":{"shape":"linear","base":"3m"},
			"deadline":"2001-01-02T03:04:05Z"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		if run, err = s.client.EnqueueWorkflow(ctx, w); err != nil {
			t.Fatal(err)
		}
		a, b := s.get(run.Tasks["a"]), s.get(run.Tasks["b"])
		if a.Weight != 5 || a.Deadline.Sub(a.EnqueuedAt) != time.Hour || a.ExpiresAt.Sub(a.EnqueuedAt) != 30*time.Minute ||
			!a.Ephemeral || a.Backoff != tusk.ConstantBackoff(7*time.Second) ||
			b.Backoff != tusk.LinearBackoff(3*time.Minute) ||
			b.Weight != 1 || !b.Deadline.Equal(time.Date(2001, 1, 2, 3, 4, 5, 0, time.UTC)) || b.Ephemeral {
			t.Errorf("%+v\n%+v", a, b)
		}
		for text, says := range map[string]string{
			`{"tasks":[{"name":"a","kind":"k","deadline":"tomorrow"}]}`: "tomorrow",
			`{"tasks":[{"name":"a","kind":"k","deadline_in":"soon"}]}`:  "soon",
			`{`:             "workflow: not JSON: it ends at byte 1, too early",
			`{"tasks":[]}x`: "something follows it at byte 12",
			`{"tasks":[{"name":"a","kind":"k","aftr":["b"]}]}`:                  `tasks[0]: unknown field "aftr"; did you`,
			`{"tasks":[{"name":"a","kind":"k","tags":"b"}]}`:                    `tasks[0].tags: is "b": want a list`,
			`{"tasks":[{"name":"a","kind":"k","tags":["b",1]}]}`:                `tasks[0].tags[1]: is 1: want a string`,
			`{"tasks":[{"name":"a","kind":"k","last":"yes"}]}`:                  `last: is "yes": want true or false`,
			`{"tasks":[{"name":"a","kind":"k","priority":40000}]}`:              `tasks[0].priority: is 40000: want`,
			`{"tasks":[{"name":"a","name":"b","kind":"k"}]}`:                    `tasks[0]: the field name comes twice`,
			`{"tasks":[{"name":"a","kind":"k","queue":null}]}`:                  `tasks[0].queue: is null: leave it out`,
			`{"tasks":[{"name":"a","kind":"k","backoff":"often"}]}`:             `tasks[0].backoff: want constant:5s`,
			`{"tasks":[{"name":"a","kind":"k","backoff":{"bas":"1s"}}]}`:        `did you mean base?`,
			`{"tasks":[{"name":"a","kind":"k","backoff":"exponential:1h:1s"}]}`: `base 1h above its max 1s`,
			`[]`: `workflow: is []: want an object`,
			`{"tasks":[{"name":"a","kind":"k","after":["z"]}]}`:                                       `"z"`,
			`{"tasks":[{"name":"b","kind":"k"},{"name":"a","kind":"k","last":true,"after":["b"]}]}`:   "comes last",
			`{"tasks":[{"name":"a","kind":"k","colour":1}]}`:                                          "colour",
			`{"tasks":[{"name":"a","kind":"k","timeout":"soon"}]}`:                                    "soon",
			`{"tasks":[{"name":"a","kind":"k","on_failure":"panic"}]}`:                                "panic",
			`{"tasks":[{"name":"a","kind":"k","after":["b"]},{"name":"b","kind":"k","after":["a"]}]}`: "cycle",
		} {
			if _, err := tusk.ParseWorkflow([]byte(text)); !errors.Is(err, tusk.ErrInvalid) ||
				!strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v", text, err)
			}
		}
	})
	inBubble(t, "what JSON says of a task is checked when it is enqueued", func(t *testing.T, s *shop) {
		for member, says := range map[string]string{`"weight":-1`: "weight", `"deadline_in":"-1h"`: "deadline",
			`"expires_in":"-1s"`: "expires"} {
			w, err := tusk.ParseWorkflow([]byte(`{"tasks":[{"name":"a","kind":"k",` + member + `}]}`))
			if err == nil {
				_, err = s.client.EnqueueWorkflow(ctx, w)
			}
			if !errors.Is(err, tusk.ErrInvalid) || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v", member, err)
			}
		}
	})
	inBubble(t, "ten thousand tasks run in their order", func(t *testing.T, s *shop) {
		var mu sync.Mutex
		done := map[tusk.ID]bool{}
		tusk.Handle(s.mux, func(_ context.Context, task *tusk.Task[count]) error {
			mu.Lock()
			defer mu.Unlock()
			done[task.ID] = true
			return nil
		})
		w := tusk.NewWorkflow()
		var before []*tusk.Node
		for level := range 100 {
			var nodes []*tusk.Node
			for i := range 100 {
				n := w.Task(fmt.Sprintf("n-%d-%d", level, i), count{}, nil)
				if level > 0 {
					n.After(before[i], before[(i+1)%100])
				}
				nodes = append(nodes, n)
			}
			before = nodes
		}
		_, stop := s.work(&tusk.WorkerConfig{Concurrency: 100})
		run, err := s.client.EnqueueWorkflow(ctx, w)
		if err != nil {
			t.Fatal(err)
		}
		for range 600 {
			if mu.Lock(); len(done) == 10000 {
				mu.Unlock()
				break
			}
			mu.Unlock()
			time.Sleep(time.Second)
		}
		time.Sleep(time.Second)
		if info, _ := s.client.Workflow(ctx, run.ID); !info.Done() {
			t.Errorf("%+v", info.States)
		}
		s.stop(stop)
	})
}

func FuzzParseWorkflow(f *testing.F) {
	f.Add([]byte(`{"tasks":[{"name":"b","kind":"count","after":["a"]},{"name":"a","kind":"count"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if _, err := tusk.ParseWorkflow(text); err != nil && !errors.Is(err, tusk.ErrInvalid) {
			t.Errorf("%q: %v", text, err)
		}
	})
}

func TestAWorkflowHasSoManyDependencies(t *testing.T) {
	w := tusk.NewWorkflow()
	var parents []*tusk.Node
	for i := range 251 {
		parents = append(parents, w.Task(fmt.Sprintf("p%d", i), tusk.RawArgs{Name: "k"}, nil))
	}
	for i := range 200 {
		w.Task(fmt.Sprintf("c%d", i), tusk.RawArgs{Name: "k"}, nil).After(parents...)
	}
	client, err := tusk.NewClient(memory.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var invalid *tusk.InvalidError
	if _, err := client.EnqueueWorkflow(t.Context(), w); !errors.As(err, &invalid) || invalid.Code != "too_large" ||
		!strings.Contains(invalid.Text, "50000") {
		t.Errorf("251 parents of 200 tasks each: %v", err)
	}
}
