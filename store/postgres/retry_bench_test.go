package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// BenchmarkRetry measures what the server does when a single task fails, is admitted again, claimed again and
// completed, each in a call of its own. An op is a task.
func BenchmarkRetry(b *testing.B) {
	s, _ := fresh(b)
	ctx := context.Background()
	w := startWorker(b, s)
	lead, err := s.Lead(ctx, store.Candidate{ID: newID(), TTL: time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	claim := func(t *store.Task) error {
		tasks, err := s.Claim(ctx, store.ClaimRequest{Worker: w, Queues: []string{"q"}, Limit: 1, Token: store.NewToken()})
		if len(tasks) > 0 {
			*t = tasks[0]
		}
		return err
	}
	phases := []struct {
		name string
		do   func(t *store.Task) error
	}{
		{"claim", claim},
		{"fail", func(t *store.Task) error {
			_, err := s.Finish(ctx, []store.Outcome{{Task: t, State: store.Retryable, Attempt: t.Attempt,
				Error: "smtp: 421", Fingerprint: "0123456789abcdef", Trace: "a trace"}})
			return err
		}},
		{"admit", func(*store.Task) error {
			_, err := s.Admit(ctx, lead.Term, 1)
			return err
		}},
		{"claim-again", claim},
		{"complete", func(t *store.Task) error {
			_, err := s.Finish(ctx, completed([]store.Task{*t}))
			return err
		}},
	}
	spent := make([]time.Duration, len(phases))
	const part = 500
	for n := 0; n < b.N; n += part {
		if _, err := s.Enqueue(ctx, newTasks(part, "q")); err != nil {
			b.Fatal(err)
		}
		tasks := make([]store.Task, part)
		for i, phase := range phases {
			before, err := s.Measure(ctx)
			for k := 0; k < part && err == nil; k++ {
				err = phase.do(&tasks[k])
			}
			if err != nil {
				b.Fatal(phase.name, err)
			}
			after, err := s.Measure(ctx)
			if err != nil {
				b.Fatal(err)
			}
			spent[i] += after.ServerCPU - before.ServerCPU
		}
	}
	for i, phase := range phases {
		b.ReportMetric(float64(spent[i].Microseconds())/float64((b.N+part-1)/part*part), phase.name+"-µs/op")
	}
}
