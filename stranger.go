package tusk

import (
	"context"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/internal/lifecycle"
	"github.com/tuskqueue/tusk/store"
)

// strangers are tasks of kinds that a worker has no handler for. It hands them back, and notes how
// often, so that a task which nobody takes comes back ever more rarely.
type strangers struct {
	client *Client
	worker func() ID

	mu     sync.Mutex
	met    map[ID]int // how often each was handed back
	living []store.Worker
	looked time.Time
}

const (
	mostStrangers = 10000       // that are remembered; then all are forgotten
	livingFor     = time.Second // how long a look at the workers is believed
)

// meet says of a task that this worker cannot run how often it has come, and whether another
// worker could run it. If that cannot be found out nobody can.
func (s *strangers) meet(ctx context.Context, t *store.Task) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.met == nil || len(s.met) >= mostStrangers {
		s.met = map[ID]int{}
	}
	times := s.met[t.ID]
	s.met[t.ID]++
	if time.Since(s.looked) > livingFor {
		living, err := s.client.Workers(ctx)
		if err != nil {
			s.client.config.Logger.Warn("run: who else has a kind could not be read", "kind", t.Kind, "error", err)
		}
		s.living, s.looked = living, time.Now()
	}
	unknown := &lifecycle.UnknownKindError{Times: times}
	self := s.worker()
	for i := range s.living {
		if w := &s.living[i]; w.ID != self && w.Takes(t.Queue, t.Kind) {
			unknown.Elsewhere = true
			unknown.Free = unknown.Free || w.Running < w.Concurrency
		}
	}
	return unknown
}
