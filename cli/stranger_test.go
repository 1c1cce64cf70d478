package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

// counted is a store that counts claimed tasks, and calls that finish some.
type counted struct {
	store.Store
	claimed, finished atomic.Int64
}

func (c *counted) Claim(ctx context.Context, r store.ClaimRequest) ([]store.Task, error) {
	tasks, err := c.Store.Claim(ctx, r)
	c.claimed.Add(int64(len(tasks)))
	return tasks, err
}

func (c *counted) Finish(ctx context.Context, o []store.Outcome) ([]store.ID, error) {
	c.finished.Add(1)
	return c.Store.Finish(ctx, o)
}

// Unwrap makes the engine's capabilities visible to store.As.
func (c *counted) Unwrap() store.Store { return c.Store }

func TestTasksThatNobodyCanRunWaitForAWorkerThatCan(t *testing.T) {
	onEachEngine(t, func(t *testing.T, client *tusk.Client) {
		t.Parallel()
		c := &counted{Store: client.Store()}
		client, err := tusk.NewClient(c, &tusk.ClientConfig{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		var ran atomic.Int64
		start := func(kind string) {
			mux := tusk.NewMux()
			tusk.HandleKind(mux, kind, func(context.Context, *tusk.Task[json.RawMessage]) error { ran.Add(1); return nil })
			w, err := tusk.NewWorker(client, mux, nil)
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(context.Background())
			done := make(chan error, 1)
			go func() { done <- w.Run(ctx) }()
			t.Cleanup(func() {
				stop()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		}
		const many = 300
		start("other")
		enqueueMany(t, client, many, tusk.Options{})
		enqueueMany(t, client, 1, tusk.Options{Delay: time.Hour})
		tasks := func(state tusk.State) int64 {
			queues, err := client.Queues(t.Context())
			if err != nil || len(queues) != 1 {
				t.Fatal(queues, err)
			}
			return queues[0].Tasks[state]
		}
		eventually(t, func() bool { return tasks(store.Retryable) == many },
			func() string { return "tasks of a kind that nobody has are claimed still" })
		claimed, finished := c.claimed.Load(), c.finished.Load()
		if claimed > 3*many {
			t.Errorf("%d tasks are claimed %d times before they are put off", many, claimed)
		}
		time.Sleep(6 * time.Second)
		if c.claimed.Load() != claimed || c.finished.Load() != finished {
			t.Errorf("%d claims, %d calls of Finish while nobody has the kind", c.claimed.Load()-claimed,
				c.finished.Load()-finished)
		}
		start("echo")
		eventually(t, func() bool { return ran.Load() >= many }, func() string { return "they do not run" })
		if tasks(store.Scheduled) != 1 || ran.Load() != many {
			t.Errorf("%d ran: a task that was scheduled is touched", ran.Load())
		}
	})
}

// The process that is the first to hear of a task that was handed back must not take it every time.
func TestTwoWorkersThatEachHaveAKindShareAQueue(t *testing.T) {
	sh := filledShell(t)
	for _, kind := range []string{"ka", "kb"} {
		sh.start("work", "--queue", "k", "--exec", kind+"=true", "--enable-exec").await("msg=work")
	}
	var lines strings.Builder
	for range 50 {
		lines.WriteString(`{"kind":"ka","queue":"k"}` + "\n" + `{"kind":"kb","queue":"k"}` + "\n")
	}
	sh.write("tasks.jsonl", lines.String(), 0o600)
	sh.must("enqueue", "--from", "tasks.jsonl")
	done := func() int { return len(sh.json("tasks", "list", "--state", "completed", "--limit", "200")) }
	eventually(t, func() bool { return done() == 100 }, func() string { return fmt.Sprint(done(), " of 100 have run") })
}
