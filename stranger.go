package tusk

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/internal/lifecycle"
	"github.com/tuskqueue/tusk/internal/tend"
	"github.com/tuskqueue/tusk/store"
)

// strangers are tasks of kinds that a worker has no handler for. The worker hands them back. If another worker has
// a handler, the task comes back less and less often; if no worker has one, the task is postponed until the leader
// finds a worker that has.
type strangers struct {
	client *Client
	worker func() ID

	mu     sync.Mutex
	met    map[ID]int // how often each task was handed back
	kinds  map[kindOf]*strange
	living []store.Worker
	looked time.Time
	known  bool // whether the live workers were known at that time

	refused time.Time // when informing the leader about a kind last failed

	leaving sync.Mutex           // never held during a call of the store
	left    map[string]time.Time // queues that are left to other workers, and until when
}

// kindOf is a kind of tasks in a queue.
type kindOf struct{ queue, kind string }

// strange is what a worker knows about a kind that no worker has a handler for.
type strange struct {
	since time.Time // when that was first seen
	noted time.Time // when the leader was last informed; zero means never
}

const (
	mostStrangers = 10000       // tasks that are remembered; beyond that all are forgotten
	livingFor     = time.Second // how long the list of workers is used
	// settles is how long a kind must be without a worker that has a handler for it before its tasks are
	// postponed, so that a restart of a worker does not count.
	settles = 4 * time.Second
	// refusedFor is how long the leader is not informed about other kinds after that failed.
	refusedFor = time.Minute
)

// meet returns an error for a task that this worker cannot run. It says how often the task has come, and whether
// another worker could run it. If that cannot be determined, it says that none can.
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
		s.living, s.looked, s.known = living, time.Now(), err == nil
	}
	unknown := &lifecycle.UnknownKindError{Times: times}
	unknown.Elsewhere, unknown.Free = s.others(t)
	kind := kindOf{t.Queue, t.Kind}
	if unknown.Elsewhere || !s.known {
		delete(s.kinds, kind)
	} else if unknown.Noted = s.note(ctx, kind); unknown.Noted {
		delete(s.met, t.ID)
	}
	return unknown
}

// longestRest limits the pause between two polls of another worker that leaveTo assumes.
const longestRest = time.Second

// leaveTo stops claims from a queue for longer than the pause between two polls of another worker. It does so if a
// claim brought only tasks from the queue that this worker has handed back before and that another worker has a
// handler and a free slot for. Otherwise a worker that is notified of the tasks sooner would take them each time.
// It does nothing while meet is running, which may be waiting for the store.
func (s *strangers) leaveTo(tasks []store.Task, has func(kind string) bool, rest time.Duration) {
	if !s.mu.TryLock() {
		return
	}
	all := map[string]bool{}
	for i := range tasks {
		t := &tasks[i]
		left, seen := all[t.Queue]
		if left = (left || !seen) && s.met[t.ID] > 0 && !has(t.Kind); left {
			_, left = s.others(t)
		}
		all[t.Queue] = left
	}
	s.mu.Unlock()
	rest = min(rest, longestRest)
	s.leaving.Lock()
	defer s.leaving.Unlock()
	for queue, repeated := range all {
		if repeated {
			if s.left == nil {
				s.left = map[string]time.Time{}
			}
			s.left[queue] = time.Now().Add(rest + rest/2 + rand.N(rest))
		}
	}
}

// takes reports whether the worker claims from a queue now.
func (s *strangers) takes(queue string) bool {
	s.leaving.Lock()
	defer s.leaving.Unlock()
	until, left := s.left[queue]
	if left && !time.Now().Before(until) {
		delete(s.left, queue)
		left = false
	}
	return !left
}

// others reports whether another known worker has a handler for a task, and whether such a worker has a free slot.
func (s *strangers) others(t *store.Task) (some, free bool) {
	self := s.worker()
	for i := range s.living {
		if w := &s.living[i]; w.ID != self && w.Takes(t.Queue, t.Kind) {
			some, free = true, free || w.Running < w.Concurrency
		}
	}
	return some, free
}

// note reports whether the leader knows that tasks of a kind are postponed. The record for the leader is stored
// before the first of them is postponed.
func (s *strangers) note(ctx context.Context, of kindOf) bool {
	if s.kinds == nil || len(s.kinds) >= mostStrangers {
		s.kinds = map[kindOf]*strange{}
	}
	k := s.kinds[of]
	if k == nil {
		k = &strange{since: time.Now()}
		s.kinds[of] = k
	}
	switch {
	case !k.noted.IsZero() && time.Since(k.noted) < tend.StrangerAgain:
		return true
	case time.Since(k.since) < settles, !s.refused.IsZero() && time.Since(s.refused) < refusedFor:
		return false
	}
	noted, err := tend.NoteStranger(ctx, s.client.store, of.kind)
	if err != nil {
		s.client.config.Logger.Warn("run: that nobody has a kind could not be noted", "kind", of.kind, "error", err)
	}
	if k.noted = time.Now(); !noted {
		k.noted, s.refused = time.Time{}, time.Now()
	}
	return noted
}
