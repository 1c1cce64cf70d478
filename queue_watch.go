package tusk

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/internal/allot"
	"github.com/tuskqueue/tusk/internal/loop"
	"github.com/tuskqueue/tusk/store"
)

// queueWatch knows which of a worker's queues are open.
type queueWatch struct {
	client  *Client
	queues  []string
	worker  func() ID // which may be quiet; nil: none is
	changed func()
	loop    *loop.Loop

	// Where the engine can look at more with the same trip: nil, or told who leads, and what was
	// found in the queues that rest; and after what pause the next look comes.
	leads  func(leader ID, now time.Time, pause time.Duration)
	rests  func() []string
	rarest time.Duration // the longest pause between looks
	looked func(began time.Time, found []string, pause time.Duration)

	mu     sync.Mutex
	read   time.Time       // when the settings that are known were read
	heard  bool            // of tasks, since then
	paused map[string]bool // or this worker is quiet; nil: not known yet
	most   map[string]int  // limits of how many of a queue a worker may hold
}

func newQueueWatch(c *Client, queues []string, log *slog.Logger) *queueWatch {
	w := &queueWatch{client: c, queues: queues}
	w.loop = loop.New("queue settings", 10*time.Second, log, w.refresh)
	return w
}

// open lists the queues that are not paused, and how many tasks of a queue a worker
// may hold; none before the first look, so that a worker never claims from a queue
// that was paused before it started.
func (w *queueWatch) open() (open []string, most map[string]int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.paused == nil {
		return nil, nil
	}
	open = make([]string, 0, len(w.queues))
	for _, q := range w.queues {
		if !w.paused[q] {
			open = append(open, q)
		}
	}
	return open, w.most
}

// settings are what a look tells of queues.
type settings struct {
	queues []store.Record
	limits map[string]Limits
	pause  time.Duration // until the next look
	rested bool          // the source rested
	found  []string      // where tasks may be, of the queues that it rested on
}

// settings reads the settings of queues, and the limits of all, in one trip where the engine can.
func (w *queueWatch) settings(ctx context.Context) (s settings, err error) {
	c := w.client
	s.pause = queueRefresh
	engine, ok := store.As[store.Looker](c.store)
	if !ok {
		if s.queues, err = c.store.Records(ctx, queueRecord); err == nil {
			s.limits, err = c.limits.of(ctx, c)
		}
		return s, err
	}
	var resting []string
	if w.rests != nil {
		resting = w.rests()
	}
	asked := time.Now()
	seen, err := engine.Look(ctx, resting, queueRecord, allot.RecordKind)
	if err != nil {
		return s, err
	}
	if len(resting) == len(w.queues) && len(seen.Queues) == 0 {
		s.pause = max(min(lookAgain(seen.Workers), w.rarest), queueRefresh)
	}
	if w.leads != nil {
		w.leads(seen.Leader, seen.Now, s.pause)
	}
	s.rested, s.found = len(resting) > 0, seen.Queues
	isLimit := func(r store.Record) bool { return r.Kind == allot.RecordKind }
	s.queues = slices.DeleteFunc(slices.Clone(seen.Records), isLimit)
	s.limits, err = limitsOf(slices.DeleteFunc(seen.Records, func(r store.Record) bool { return !isLimit(r) }))
	if err == nil {
		c.limits.take(s.limits, asked)
	}
	return s, err
}

// lookAgain is the pause after a look that found nothing, of one of so many workers with the same
// queues. Together they look once a second; none looks less often than every ten seconds.
func lookAgain(workers int) time.Duration {
	return min(time.Duration(workers)*queueRefresh, 10*queueRefresh)
}

// hear is told that queues may have tasks. It reports whether the settings are too old to claim by:
// then it reads them first, and tells the source what it finds.
func (w *queueWatch) hear() (first bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.paused == nil || time.Since(w.read) <= queueRefresh {
		return false
	}
	w.heard = true
	w.loop.Wake()
	return true
}

// forget reports whether anything was heard, once.
func (w *queueWatch) forget() (heard bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	heard, w.heard = w.heard, false
	return heard
}

func (w *queueWatch) refresh(ctx context.Context) (time.Duration, error) {
	began, heard := time.Now(), w.forget()
	now, err := w.settings(ctx)
	if err != nil {
		if heard {
			w.hear()
		}
		return 0, err
	}
	paused := map[string]bool{}
	for _, r := range now.queues {
		var s queueSettings
		if err := json.Unmarshal(r.Body, &s); err != nil {
			return 0, fmt.Errorf("settings of %s: %w", r.Name, err)
		}
		paused[r.Name] = s.Paused || w.worker != nil && slices.Contains(s.Quiet, w.worker())
	}
	most := map[string]int{}
	for _, q := range w.queues {
		if n := now.limits[q].PerWorker; n > 0 {
			most[q] = n
		}
	}
	w.mu.Lock()
	first := w.paused == nil
	opened := first || heard && !now.rested
	for _, q := range w.queues {
		opened = opened || w.paused[q] && !paused[q] || w.most[q] != most[q]
	}
	w.paused, w.most, w.read = paused, most, began
	w.mu.Unlock()
	if now.rested {
		w.looked(began, now.found, now.pause)
	}
	if opened {
		w.changed()
	}
	return now.pause, nil
}
