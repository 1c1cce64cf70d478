package tusk_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
)

func TestAWorkersTimeLimitsAreTheLastResort(t *testing.T) {
	once := func(o tusk.Options) *tusk.Options { o.MaxAttempts = 1; return &o }
	for name, c := range map[string]struct {
		config  tusk.WorkerConfig
		handler []tusk.HandlerOption
		task    tusk.Options
		want    string
		after   time.Duration
	}{
		"a timeout": {config: tusk.WorkerConfig{Timeout: 2 * time.Second}, want: "timed out after 2s",
			after: 2 * time.Second},
		"a stall timeout": {config: tusk.WorkerConfig{StallTimeout: 3 * time.Second}, want: "no progress for 3s",
			after: 3 * time.Second},
		"the handler's goes first": {config: tusk.WorkerConfig{Timeout: 2 * time.Second, StallTimeout: time.Hour},
			handler: []tusk.HandlerOption{tusk.WithTimeout(time.Minute)}, want: "timed out after 1m", after: time.Minute},
		"the task's goes first": {config: tusk.WorkerConfig{Timeout: time.Hour, StallTimeout: 2 * time.Second},
			task: tusk.Options{StallTimeout: 5 * time.Second}, want: "no progress for 5s", after: 5 * time.Second},
	} {
		inBubble(t, name, func(t *testing.T, s *shop) {
			tusk.HandleFunc(s.mux, func(ctx context.Context, _ count) error {
				<-ctx.Done()
				return context.Cause(ctx)
			}, c.handler...)
			_, stop := s.work(&c.config)
			task := s.await(s.enqueue(count{}, once(c.task)), tusk.StateDiscarded)
			last := task.Detail.Attempts[len(task.Detail.Attempts)-1]
			if ran := last.EndedAt.Sub(last.StartedAt); !strings.Contains(last.Error, c.want) || ran < c.after ||
				ran > c.after+time.Second {
				t.Errorf("%s after %v, want %s", last.Error, ran, c.want)
			}
			s.stop(stop)
		})
	}
}
