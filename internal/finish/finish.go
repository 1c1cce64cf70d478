// Package finish gathers outcomes and writes them in batches until they are
// known to be stored.
//
// It may touch a store's Finish and nothing else. Outcomes come in from the
// worker, which had them decided by package lifecycle; what became of them goes
// back to it.
package finish

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Finisher is the part of a store that it needs.
type Finisher interface {
	Finish(ctx context.Context, outcomes []store.Outcome) (lost []store.ID, err error)
}

// Gatherer collects outcomes. Make it with New, then call Run.
type Gatherer struct {
	store    Finisher
	log      *slog.Logger
	largest  int
	linger   time.Duration
	deadline time.Duration
	done     func(written []store.Outcome, lost map[store.ID]bool)

	in      chan timed
	parts   []timed // of claims that others of are still running
	quit    chan struct{}
	aside   []timed // failed alone while others were stored
	success atomic.Int64
}

type timed struct {
	store.Outcome
	ended  time.Time
	batch  *atomic.Int64 // of the same claim and without an outcome; nil: none
	put    time.Time     // aside
	tries  int           // failed ones, alone
	failed time.Time     // the first of them
}

// Options of a Gatherer.
type Options struct {
	Largest  int           // outcomes in one batch
	Linger   time.Duration // how long the first of a batch waits for others
	Deadline time.Duration // of one write
	Log      *slog.Logger
	// Done is told what was written, and which of it the store refused because
	// the lease was no longer open.
	Done func(written []store.Outcome, lost map[store.ID]bool)
}

// New makes a gatherer.
func New(s Finisher, o Options) *Gatherer {
	g := &Gatherer{store: s, log: o.Log, largest: o.Largest, linger: o.Linger, deadline: o.Deadline, done: o.Done,
		in: make(chan timed, 2*o.Largest), quit: make(chan struct{})}
	g.success.Store(time.Now().UnixNano())
	return g
}

// Add takes an outcome. It blocks while two full batches wait: whoever makes
// outcomes faster than the store takes them has to slow down. After Close it
// drops the outcome: the lease runs out and the task runs again.
//
// The tasks of one claim share a lease, and a lease that ends as a whole costs
// some engines a fraction of one that ends in parts. So an outcome waits a little
// while others of its claim, which batch counts, have none.
func (g *Gatherer) Add(o store.Outcome, batch *atomic.Int64) {
	select {
	case g.in <- timed{Outcome: o, ended: time.Now(), batch: batch}:
	case <-g.quit:
	}
}

// Pending is the number of outcomes that wait, and Full whether claiming more
// tasks would only make it worse.
func (g *Gatherer) Pending() int { return len(g.in) }

// Full reports whether a whole batch waits behind the one being written.
func (g *Gatherer) Full() bool { return len(g.in) >= g.largest }

// Close says that no more outcomes come: Run ends when all are written.
func (g *Gatherer) Close() { close(g.quit) }

// Age is how long outcomes have failed to be written; 0 when none waits.
func (g *Gatherer) Age() time.Duration {
	if len(g.in) == 0 {
		return 0
	}
	return time.Since(time.Unix(0, g.success.Load()))
}

// Run writes batches until Close, or until the context ends, which gives up what
// is not written: those leases run out and their tasks run again.
func (g *Gatherer) Run(ctx context.Context) {
	for {
		batch := g.gather()
		if len(batch) == 0 {
			return
		}
		if whole := g.whole(batch); len(whole) > 0 {
			g.write(ctx, whole)
		}
	}
}

// gather waits for one outcome and a little for more. After Close it takes what
// is there, and nothing means the end.
func (g *Gatherer) gather() []timed {
	batch := g.first()
	linger := time.NewTimer(g.linger)
	defer linger.Stop()
	for len(batch) < g.largest {
		select {
		case next := <-g.in:
			batch = append(batch, next)
		case <-linger.C:
			return batch
		case <-g.quit:
			return g.drain(batch)
		}
	}
	return batch
}

// first waits for an outcome, for the parts of a claim, or for the next try of
// those set aside, whichever is first.
func (g *Gatherer) first() []timed {
	var again <-chan time.Time
	switch {
	case len(g.parts) > 0:
		again = time.After(g.linger)
	case len(g.aside) > 0:
		again = time.After(asidePause)
	}
	batch := append(make([]timed, 0, min(g.largest, len(g.in)+len(g.parts)+16)), g.parts...)
	g.parts = nil
	select {
	case one := <-g.in:
		batch = append(batch, one)
	case <-again:
	case <-g.quit:
	}
	return append(batch, g.due()...)
}

// asidePause is how long an outcome that was set aside waits for its next try.
const asidePause = time.Second

// due takes back the outcomes whose next try has come; after Close, all.
func (g *Gatherer) due() (due []timed) {
	waiting := g.aside[:0]
	for _, o := range g.aside {
		if time.Since(o.put) >= asidePause || g.closed() {
			due = append(due, o)
		} else {
			waiting = append(waiting, o)
		}
	}
	g.aside = waiting
	return due
}

// patience is how long an outcome waits for others of its claim.
const patience = 10 * time.Millisecond

// whole takes the parts of unfinished claims out of a batch, for another time,
// unless they have waited long enough.
func (g *Gatherer) whole(batch []timed) []timed {
	whole := batch[:0]
	now := time.Now()
	for _, o := range batch {
		if o.batch != nil && o.batch.Load() > 0 && now.Sub(o.ended) < patience && !g.closed() {
			g.parts = append(g.parts, o)
		} else {
			whole = append(whole, o)
		}
	}
	return whole
}

func (g *Gatherer) closed() bool {
	select {
	case <-g.quit:
		return true
	default:
		return false
	}
}

func (g *Gatherer) drain(batch []timed) []timed {
	for len(batch) < g.largest {
		select {
		case next := <-g.in:
			batch = append(batch, next)
		default:
			return batch
		}
	}
	return batch
}

// write repeats until the batch is stored. A batch that keeps failing is halved,
// down to single outcomes; one that fails alone is set aside, so that an outcome
// which no store would take holds up only itself.
func (g *Gatherer) write(ctx context.Context, batch []timed) {
	pause, size := firstPause, len(batch)
	for failures := 0; len(batch) > 0 && ctx.Err() == nil; {
		part := batch[:min(size, len(batch))]
		outcomes := stamp(part)
		lost, err := g.try(ctx, outcomes)
		if err == nil {
			g.success.Store(time.Now().UnixNano())
			g.done(outcomes, set(lost))
			batch, pause, failures = batch[len(part):], firstPause, 0
			continue
		}
		failures++
		g.log.Warn("finish", "error", err, "outcomes", len(part), "failures", failures, "retry_in", pause)
		if len(part) == 1 && failures > 1 {
			g.setAside(part[0], err)
			batch, failures = batch[1:], 0
		} else if failures > 1 {
			size = max(size/2, 1)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, 5*time.Second)
	}
}

const firstPause = 20 * time.Millisecond

// setAside keeps an outcome for later. When it has failed again and again while
// others were stored, the fault is its own: then only the fact that the attempt
// has ended is kept, as a dead letter that says why.
func (g *Gatherer) setAside(o timed, err error) {
	if o.tries++; o.tries == 1 {
		o.failed = time.Now()
	}
	if o.tries == 3 && g.success.Load() > o.failed.UnixNano() {
		g.log.Error("finish: the outcome cannot be stored, discarding the task instead", "task", o.Task.ID, "error", err)
		o.State, o.Delay, o.Note, o.Trace = store.Discarded, 0, nil, ""
		o.Reason = "its outcome could not be stored"
		o.Error, o.Fingerprint = "outcome could not be stored", "unstorable"
	} else if o.tries == 3 {
		o.tries = 0 // nothing else was stored either: it is not to blame
	}
	o.put = time.Now()
	g.aside = append(g.aside, o)
}

func (g *Gatherer) try(ctx context.Context, outcomes []store.Outcome) (lost []store.ID, err error) {
	ctx, cancel := context.WithTimeout(ctx, g.deadline)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return g.store.Finish(ctx, outcomes)
}

// stamp says how long ago each attempt ended, as of now.
func stamp(batch []timed) []store.Outcome {
	now := time.Now()
	outcomes := make([]store.Outcome, len(batch))
	for i, o := range batch {
		outcomes[i] = o.Outcome
		outcomes[i].Ago = now.Sub(o.ended)
	}
	return outcomes
}

func set(ids []store.ID) map[store.ID]bool {
	if len(ids) == 0 {
		return nil
	}
	members := make(map[store.ID]bool, len(ids))
	for _, id := range ids {
		members[id] = true
	}
	return members
}
