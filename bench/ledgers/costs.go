package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// costs measures what calls of several sizes cost a server. The simulation of many servers is based
// on these figures.
func costs(ctx context.Context, b *bench) ([]bar, error) {
	_, dsns, stop, err := servers(1)
	if err != nil {
		return nil, err
	}
	defer stop()
	s, err := alone(ctx, dsns[0])
	if err != nil {
		return nil, err
	}
	defer s.Close()
	worker := tusk.NewID()
	if _, err := s.Extend(ctx, store.Beat{Worker: store.Worker{ID: worker}, TTL: time.Hour}); err != nil {
		return nil, err
	}
	for _, size := range []int{1, 10, 100, 500, 1000} {
		calls := max(b.tasks/40/size, 100)
		var held [][]store.Task
		steps := []struct {
			name string
			do   func() error
		}{
			{"enqueue", func() error {
				tasks := make([]store.NewTask, size)
				for i := range tasks {
					tasks[i] = store.NewTask{ID: tusk.NewID(), Kind: "work", Queue: "q", Args: []byte(`{"n":1,"pad":"` + pad + `"}`)}
				}
				_, err := s.Enqueue(ctx, tasks)
				return err
			}},
			{"claim", func() error {
				r := store.ClaimRequest{Worker: worker, Queues: []string{"q"}, Limit: size, Token: store.NewToken()}
				tasks, err := s.Claim(ctx, r)
				held = append(held, tasks)
				return err
			}},
			{"finish", func() error {
				tasks := held[0]
				held = held[1:]
				outcomes := make([]store.Outcome, len(tasks))
				for i := range tasks {
					outcomes[i] = store.Outcome{Task: &tasks[i], State: store.Completed, Attempt: tasks[i].Attempt}
				}
				_, err := s.Finish(ctx, outcomes)
				return err
			}},
			{"empty claim", func() error {
				r := store.ClaimRequest{Worker: worker, Queues: []string{"q"}, Limit: size, Token: store.NewToken()}
				_, err := s.Claim(ctx, r)
				return err
			}},
		}
		for _, step := range steps {
			used, took, err := repeat(ctx, s, calls, step.do)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", step.name, err)
			}
			fmt.Fprintf(os.Stderr, "%-12s of %4d: server %8.1f us a call, %7.2f us a task; the call takes %8.1f us\n",
				step.name, size, used, used/float64(size), took)
		}
	}
	return nil, nil
}

// repeat measures consecutive calls, in microseconds per call.
func repeat(ctx context.Context, s *postgres.Store, calls int, do func() error) (server, took float64, err error) {
	before, err := s.Measure(ctx)
	if err != nil {
		return 0, 0, err
	}
	begun := time.Now()
	for range calls {
		if err := do(); err != nil {
			return 0, 0, err
		}
	}
	lasted := time.Since(begun)
	after, err := s.Measure(ctx)
	n := float64(calls) * 1000
	return float64((after.ServerCPU - before.ServerCPU).Nanoseconds()) / n, float64(lasted.Nanoseconds()) / n, err
}
