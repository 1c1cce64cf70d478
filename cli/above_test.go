package cli

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server"
)

// What is built on an engine works on each of them: a schedule ticks, a limit holds, and the server's pages and API
// respond.
func TestSchedulesLimitsAndPagesOnEachEngine(t *testing.T) {
	onEachEngine(t, func(t *testing.T, client *tusk.Client) {
		if err := client.SetLimits(t.Context(), "narrow", tusk.Limits{Concurrency: 2}); err != nil {
			t.Fatal(err)
		}
		enqueueMany(t, client, 12, tusk.Options{Queue: "narrow", Tenant: "acme"})
		err := client.PutSchedule(t.Context(), tusk.Schedule{Name: "clock", Spec: "@every 1s",
			Args: tusk.RawArgs{Name: "tick"}, Options: &tusk.Options{Queue: "default"}})
		if err != nil {
			t.Fatal(err)
		}
		var running, most, ran, ticks atomic.Int64
		mux := tusk.NewMux()
		tusk.HandleKind(mux, "echo", func(context.Context, *tusk.Task[json.RawMessage]) error {
			defer running.Add(-1)
			most.Store(max(most.Load(), running.Add(1)))
			time.Sleep(5 * time.Millisecond)
			ran.Add(1)
			return nil
		})
		tusk.HandleKind(mux, "tick", func(context.Context, *tusk.Task[json.RawMessage]) error {
			ticks.Add(1)
			return nil
		})
		worker, err := tusk.NewWorker(client, mux, &tusk.WorkerConfig{Queues: []string{"narrow", "default"}, Concurrency: 8})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- worker.Run(ctx) }()
		eventually(t, func() bool { return ran.Load() == 12 && ticks.Load() > 0 },
			func() string { return "the queue or the schedule stands still" })
		if n := most.Load(); n > 2 {
			t.Errorf("%d tasks of a queue that allows two ran at a time", n)
		}
		pagesAnswer(t, client)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func pagesAnswer(t *testing.T, client *tusk.Client) {
	t.Helper()
	site, err := server.New(client, server.Config{Dev: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- site.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	for _, path := range []string{"/", "/tasks", "/queues", "/workflows", "/schedules", "/errors", "/limits", "/readyz",
		"/api/v1/tasks"} {
		answer := httptest.NewRecorder()
		site.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "http://localhost"+path, nil))
		if answer.Code != http.StatusOK {
			t.Errorf("%s: %d %.300s", path, answer.Code, answer.Body)
		}
	}
}
