package tusk_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store/memory"
)

func TestAFailureIsLoggedOnce(t *testing.T) {
	var log lockedText
	client, err := tusk.NewClient(memory.New(), &tusk.ClientConfig{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	mux := tusk.NewMux()
	tusk.HandleKind(mux, "fails", func(context.Context, *tusk.Task[json.RawMessage]) error {
		return errors.New("out of paper")
	})
	tusk.HandleKind(mux, "panics", func(context.Context, *tusk.Task[json.RawMessage]) error { panic("no printer") })
	options := &tusk.Options{MaxAttempts: 2, Backoff: tusk.ConstantBackoff(1)}
	for _, kind := range []string{"fails", "panics"} {
		if _, err := client.Enqueue(t.Context(), tusk.RawArgs{Name: kind, JSON: []byte(`{"password":"canary"}`)},
			options); err != nil {
			t.Fatal(err)
		}
	}
	worker, err := tusk.NewWorker(client, mux, nil)
	if err != nil {
		t.Fatal(err)
	}
	events, stopTelling := worker.Subscribe(tusk.EventDiscarded)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- worker.Run(ctx) }()
	<-events
	<-events
	stop()
	<-done
	stopTelling()
	for part, times := range map[string]int{`msg="attempt failed"`: 2, `msg="task discarded"`: 2, "out of paper": 2,
		"no printer": 2, "canary": 0} {
		if n := strings.Count(log.String(), part); n != times {
			t.Errorf("%q is there %d times:\n%s", part, n, log.String())
		}
	}
}
