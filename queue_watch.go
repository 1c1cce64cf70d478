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
	worker  func() ID // a worker that may be quiet; nil means none
	changed func()
	loop    *loop.Loop

	// Used by refresh only.
	ids   []ID            // that the worker was seen with, the current one last
	quiet map[string]bool // queues that the worker does not claim from, by the last read
	under ID              // the identity that it is named by, and that was seen alive since

	// Used if the engine can read more in the same round trip; nil otherwise. They receive the leader, and what was
	// found in the resting queues, with the pause until the next read.
	leads  func(leader ID, now, asked time.Time, pause time.Duration)
	rests  func() []string
	rarest time.Duration // the longest pause between reads
	looked func(began time.Time, found []string, pause time.Duration)

	mu     sync.Mutex
	read   time.Time       // when the known settings were read
	heard  bool            // whether a hint of tasks has come since then
	fails  bool            // the last read failed
	began  time.Time       // when the read in progress began; zero if none is
	paused map[string]bool // paused, or this worker is quiet; nil means not known yet
	most   map[string]int  // limits of how many tasks of a queue a worker may hold
}

func newQueueWatch(c *Client, queues []string, log *slog.Logger) *queueWatch {
	w := &queueWatch{client: c, queues: queues}
	w.loop = loop.New("queue settings", 10*time.Second, log, w.refresh)
	return w
}

// open lists the queues that are not paused, and how many tasks of each a worker may hold. It lists none before the
// first read, so that a worker never claims from a queue that was paused before the worker started.
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

// settings are the result of reading the queues' settings.
type settings struct {
	queues []store.Record
	limits map[string]Limits
	pause  time.Duration // until the next read
	rested bool          // whether the source was resting
	found  []string      // the resting queues that may have tasks
}

// settings reads the settings of the queues and all limits, in one round trip if the engine supports that.
func (w *queueWatch) settings(ctx context.Context) (s settings, err error) {
	c := w.client
	s.pause = queueRefresh
	engine, ok := store.As[store.Looker](c.store)
	if !ok {
		if s.queues, err = c.store.Records(ctx, store.RecordFilter{Kind: queueRecord}); err == nil {
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
		w.leads(seen.Leader, seen.Now, asked, s.pause)
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

// lookAgain returns the pause after a read that found nothing, for one of several workers with the same queues.
// Together they read once a second; each reads at least every ten seconds.
func lookAgain(workers int) time.Duration {
	return min(time.Duration(workers)*queueRefresh, 10*queueRefresh)
}

// hear receives a hint that queues may have tasks. It reports whether the settings are too old to claim by. In that
// case it makes the loop read them first, which then passes the hint on to the source. While the settings cannot be
// read, the last ones are used: the home ledger may be unreachable, and others have tasks.
func (w *queueWatch) hear() (first bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.paused == nil || w.usable() {
		return false
	}
	w.heard = true
	w.loop.Wake()
	return true
}

// fresh reports whether the settings are known, and recent enough to claim by.
func (w *queueWatch) fresh() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.paused != nil && w.usable()
}

// usable is fresh for callers that hold the lock and know that there are settings.
func (w *queueWatch) usable() bool {
	hangs := !w.began.IsZero() && time.Since(w.began) > queueRefresh
	return w.fails || hangs || time.Since(w.read) <= queueRefresh+queueGrace
}

// begin records that a read begins. It reports whether a hint has come, and resets that.
func (w *queueWatch) begin() (began time.Time, heard bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	heard, w.heard, w.began = w.heard, false, time.Now()
	return w.began, heard
}

// failed records that a read failed. A hint that waited for it is passed on.
func (w *queueWatch) failed(heard bool) {
	w.mu.Lock()
	w.fails, w.began, heard, w.heard = true, time.Time{}, heard || w.heard, false
	w.mu.Unlock()
	if heard {
		w.changed()
	}
}

func (w *queueWatch) refresh(ctx context.Context) (time.Duration, error) {
	began, heard := w.begin()
	now, err := w.settings(ctx)
	if err != nil {
		w.failed(heard)
		return 0, err
	}
	w.identify()
	paused, quiet := map[string]bool{}, map[string]bool{}
	var current ID
	if len(w.ids) > 0 {
		current = w.ids[len(w.ids)-1]
	}
	renamed := map[string]bool{} // queues in which the worker is quiet, not under its current id; true: under none
	for _, r := range now.queues {
		var s queueSettings
		if err := json.Unmarshal(r.Body, &s); err != nil {
			w.failed(heard)
			return 0, fmt.Errorf("settings of %s: %w", r.Name, err)
		}
		// Others drop an id that has ended, or that has not sent a heartbeat yet, so it was not woken.
		named := slices.ContainsFunc(s.Quiet, w.isOwn)
		if named || current != w.under && w.quiet[r.Name] {
			quiet[r.Name] = true
			if !slices.Contains(s.Quiet, current) {
				renamed[r.Name] = !named
			}
		}
		paused[r.Name] = s.Paused || quiet[r.Name]
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
	w.paused, w.most, w.read, w.fails, w.began = paused, most, began, false, time.Time{}
	w.mu.Unlock()
	if now.rested {
		w.looked(began, now.found, now.pause)
	}
	if opened {
		w.changed()
	}
	w.quiet = quiet
	return now.pause, w.staysQuiet(ctx, renamed, current)
}

// identify records the worker's current id. It changes when the database was out of reach for most of the lease.
func (w *queueWatch) identify() {
	if w.worker == nil {
		return
	}
	if id := w.worker(); len(w.ids) == 0 || w.ids[len(w.ids)-1] != id {
		w.ids = append(w.ids, id)
	}
}

func (w *queueWatch) isOwn(id ID) bool { return slices.Contains(w.ids, id) }

// staysQuiet puts the worker's current id into the settings of queues, in place of earlier ones. Otherwise, a new
// identity would end what QuietWorker began, and lists of workers would not show it.
func (w *queueWatch) staysQuiet(ctx context.Context, queues map[string]bool, current ID) error {
	for q, dropped := range queues {
		err := w.client.setQueue(ctx, q, func(s *queueSettings) {
			if dropped || slices.ContainsFunc(s.Quiet, w.isOwn) { // otherwise it was woken just now
				s.Quiet = append(slices.DeleteFunc(s.Quiet, w.isOwn), current)
			}
		})
		if err != nil {
			return fmt.Errorf("stay quiet: %w", err)
		}
	}
	if len(w.quiet) > 0 && current != w.under {
		living, err := w.client.Workers(ctx)
		if err != nil || !slices.ContainsFunc(living, func(o store.Worker) bool { return o.ID == current }) {
			return err
		}
	}
	w.under = current
	return nil
}
