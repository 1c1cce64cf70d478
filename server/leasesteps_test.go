package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server"
	"github.com/tuskqueue/tusk/store"
)

type stepped struct{}

func (stepped) Kind() string { return "k" }

func (s *site) keepStep(lease, name string, result any) (got server.LeasedStep) {
	s.t.Helper()
	s.do("POST", "/api/v1/lease/steps", object{"lease_id": lease, "name": name, "result": result}).want(s.t, 200, &got)
	return got
}

func (s *site) steps(lease string) string {
	s.t.Helper()
	var got server.LeasedSteps
	s.do("GET", "/api/v1/lease/steps", nil, "Lease-Id", lease).want(s.t, 200, &got)
	var all []string
	for _, step := range got.Steps {
		all = append(all, fmt.Sprintf("%s=%s", step.Name, step.Result))
	}
	return strings.Join(all, " ")
}

// Attempts over HTTP, through the server that lent the task and another one, and in Go find each other's steps.
func TestStepsOnEveryEngine(t *testing.T) {
	anywhere(t, func(t *testing.T, db store.Store) {
		client := newClient(t, db)
		s, other := startOn(t, client), startOn(t, newClient(t, db))
		id, err := client.Enqueue(t.Context(), stepped{}, &tusk.Options{Backoff: tusk.ConstantBackoff(time.Millisecond)})
		if err != nil {
			t.Fatal(err)
		}
		first := s.lease(object{"queues": []string{"default"}, "wait": "10s"})[0].LeaseID
		if got := s.steps(first); got != "" {
			t.Errorf("before the first step: %s", got)
		}
		s.keepStep(first, "a", object{"n": 1})
		other.keepStep(first, "b", "\u2028\"")
		if got := s.keepStep(first, "a", 2); string(got.Result) != `{"n":1}` {
			t.Errorf("a second result of a step: %s", got.Result)
		}
		s.do("POST", "/api/v1/lease/steps", object{"lease_id": first, "name": "A", "result": 1}).problem(t, 400,
			"invalid_name")
		s.do("POST", "/api/v1/lease/steps", object{"lease_id": first, "name": "c",
			"result": strings.Repeat("x", tusk.MaxStepBytes)}).problem(t, 413, "too_large")
		s.do("POST", "/api/v1/lease/fail", object{"lease_id": first, "error": "no", "retry_in": "0s"}).want(t, 200, nil)
		for _, server := range []*site{s, other} {
			server.do("POST", "/api/v1/lease/steps", object{"lease_id": first, "name": "c", "result": 1}).problem(t, 409,
				"lease_lost")
			server.do("GET", "/api/v1/lease/steps", nil, "Lease-Id", first).problem(t, 409, "lease_lost")
		}

		mux, ran := tusk.NewMux(), make(chan string, 10)
		tusk.Handle(mux, func(ctx context.Context, t *tusk.Task[stepped]) error {
			for _, name := range []string{"a", "b", "c"} {
				_, err := tusk.Step(ctx, t, name, func(context.Context) (json.RawMessage, error) {
					ran <- name
					return json.RawMessage(`[3, 4]`), nil
				})
				if err != nil {
					return err
				}
			}
			ran <- "end"
			return tusk.RetryAfter(time.Hour, errors.New("no"))
		})
		w, err := tusk.NewWorker(client, mux, nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		if a, b := <-ran, <-ran; a != "c" || b != "end" {
			t.Errorf("ran %s and %s", a, b)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}

		if err := client.Retry(t.Context(), id.ID); err != nil {
			t.Fatal(err)
		}
		last := other.lease(object{"queues": []string{"default"}, "wait": "10s"})[0].LeaseID
		if got := other.steps(last); got != `a={"n":1} b="\u2028\"" c=[3,4]` {
			t.Errorf("in the end: %s", got)
		}
		s.do("POST", "/api/v1/lease/complete", object{"lease_id": last}).want(t, 200, nil) // has not seen the steps
		if err := client.Retry(t.Context(), id.ID); err != nil {
			t.Fatal(err)
		}
		again := s.lease(object{"queues": []string{"default"}, "wait": "10s"})[0].LeaseID
		if got := s.steps(again); got != "" {
			t.Errorf("after a run that completed: %s", got)
		}
		s.keepStep(again, "d", 5)
		s.do("POST", "/api/v1/lease/fail", object{"lease_id": again, "error": "no", "retry_in": "1h"}).want(t, 200, nil)
		if err := client.Retry(t.Context(), id.ID); err != nil {
			t.Fatal(err)
		}
		again = other.lease(object{"queues": []string{"default"}, "wait": "10s"})[0].LeaseID
		if got := other.steps(again); got != "d=5" {
			t.Errorf("in the second run: %s", got)
		}
	})
}
