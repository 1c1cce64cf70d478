// Package finish gathers outcomes and writes them in batches, until they are known to be stored.
//
// It may use only a store's Finish. Outcomes come from the worker, after package lifecycle has decided them; their
// results go back to it. A single outcome may be lent to package claim, which takes it along.
package finish

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Finisher is the part of a store that a Gatherer needs.
type Finisher interface {
	Finish(ctx context.Context, outcomes []store.Outcome) (lost []store.ID, err error)
}

// Gatherer collects outcomes. Create it with New, then call Run.
type Gatherer struct {
	store    Finisher
	log      *slog.Logger
	largest  int
	linger   time.Duration
	soon     func(within time.Duration) int
	deadline time.Duration
	done     func(written []store.Outcome, lost map[store.ID]bool)

	mu    sync.Mutex
	room  sync.Cond              // signals that fewer outcomes are ready than before
	open  map[store.Token]*batch // batches of claims that still have tasks without an outcome
	ready []*batch               // to be written, in order
	count atomic.Int64           // of outcomes in ready
	lent  *batch                 // handed out by Lend
	going batch                  // being written
	// When the latest attempts ended, the newest first.
	lately [company]time.Time
	bell   chan struct{} // signals that an outcome has arrived
	quit   chan struct{} // closed by Close

	aside   []*aside
	later   chan struct{} // signals that something was set aside
	success atomic.Int64

	warned   time.Time // when a line about outcomes that are not stored was logged
	unlogged int       // failures since then
}

// Options configure a Gatherer.
type Options struct {
	// The maximum number of outcomes in one write, unless more come from one claim.
	Largest  int
	Linger   time.Duration                  // how long a batch waits for others
	Soon     func(within time.Duration) int // how many more outcomes are likely to arrive
	Deadline time.Duration                  // of one write
	Log      *slog.Logger
	// Done is called by Run and by Settle with the outcomes that were written, and those of them that the store refused
	// because their lease was no longer open. It must not keep the slice.
	Done func(written []store.Outcome, lost map[store.ID]bool)
}

// New creates a gatherer.
func New(s Finisher, o Options) *Gatherer {
	g := &Gatherer{store: s, log: o.Log, largest: o.Largest, linger: o.Linger, soon: o.Soon, deadline: o.Deadline,
		done: o.Done,
		open: map[store.Token]*batch{}, bell: make(chan struct{}, 1), later: make(chan struct{}, 1),
		quit: make(chan struct{})}
	g.room.L = &g.mu
	g.success.Store(time.Now().UnixNano())
	return g
}

// Add takes the outcome of an attempt that ended at the given time. It blocks while two full batches wait, which
// slows down callers that are faster than the store. After Close it drops the outcome: the lease runs out and the
// task runs again.
//
// The tasks of one claim share a lease, and for some engines, ending a lease as a whole costs a fraction of ending it
// in parts. So an outcome waits briefly for the others of its claim; left is the number of tasks of the claim for
// which neither Add nor Drop has been called yet.
func (g *Gatherer) Add(o store.Outcome, ended time.Time, left *atomic.Int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.count.Load() >= 2*int64(g.largest) && !g.closed() {
		g.room.Wait()
	}
	if g.closed() {
		return
	}
	others := left.Add(-1)
	b := g.open[o.Task.Lease]
	if b == nil {
		b = newBatch(int(others)+1, ended)
		g.open[o.Task.Lease] = b
		g.ring()
	}
	b.outcomes, b.ended = append(b.outcomes, o), append(b.ended, ended)
	copy(g.lately[1:], g.lately[:])
	g.lately[0] = ended
	if others == 0 {
		g.complete(o.Task.Lease, b)
	}
}

// Drop says that an attempt will have no outcome.
func (g *Gatherer) Drop(lease store.Token, left *atomic.Int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if b := g.open[lease]; left.Add(-1) == 0 && b != nil {
		g.complete(lease, b)
	}
}

// complete marks a batch as ready to be written. The caller holds the lock.
func (g *Gatherer) complete(lease store.Token, b *batch) {
	delete(g.open, lease)
	g.ready = append(g.ready, b)
	g.count.Add(int64(len(b.outcomes)))
	g.ring()
}

func (g *Gatherer) ring() {
	select {
	case g.bell <- struct{}{}:
	default:
	}
}

// Full reports whether a whole batch waits behind the one being written, so that claiming more tasks would only
// lengthen the queue.
func (g *Gatherer) Full() bool { return g.count.Load() >= int64(g.largest) }

// Close says that no more outcomes will arrive. Run ends when all are written.
func (g *Gatherer) Close() {
	close(g.quit)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.room.Broadcast()
}

func (g *Gatherer) closed() bool { return isClosed(g.quit) }

// Age returns how long outcomes have failed to be written, or 0 if none waits or is being written. Those that were set
// aside only because a user's transaction holds them do not count.
func (g *Gatherer) Age() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	oldest := time.Now()
	for _, b := range append([]*batch{&g.going}, g.ready...) {
		if len(b.outcomes) > 0 && b.since.Before(oldest) {
			oldest = b.since
		}
	}
	for _, a := range g.aside {
		if !a.held && a.ended.Before(oldest) {
			oldest = a.ended
		}
	}
	return min(time.Since(oldest), time.Since(time.Unix(0, g.success.Load())))
}

// Run writes batches until Close, or until the context ends. In the latter case it drops outcomes that are not
// written: their leases run out and their tasks run again.
func (g *Gatherer) Run(ctx context.Context) {
	written := make(chan struct{})
	var alone sync.WaitGroup
	alone.Go(func() { g.retry(ctx, written) })
	for b := g.next(); len(b.outcomes) > 0; b = g.next() {
		g.write(ctx, b)
		g.written()
		b.recycle()
	}
	close(written)
	alone.Wait()
}

// next waits for an outcome to write, and briefly for others. After Close it returns what is left; an empty batch
// means the end.
func (g *Gatherer) next() batch {
	for {
		closed := g.closed()
		b, wait := g.take(time.Now(), closed)
		if len(b.outcomes) > 0 || closed {
			return b
		}
		timer := time.NewTimer(wait)
		select {
		case <-g.bell:
		case <-timer.C:
		case <-g.quit:
		}
		timer.Stop()
	}
}

// An outcome waits for others of its claim. If there are few outcomes and more are likely to arrive, it also waits
// for those. A mere completion waits longest, because no other task waits for it.
const (
	patience = 10 * time.Millisecond
	leisure  = 40 * time.Millisecond // the same for mere completions
	company  = 3                     // outcomes that arrived within leisure, one after the other
	// Fewer outcomes than this cost less than the write itself.
	few = 32
)

// take returns the batch to write now, or how long to wait for it.
func (g *Gatherer) take(now time.Time, closed bool) (b batch, wait time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	wait = time.Second
	for lease, part := range g.open {
		if waited := now.Sub(part.since); waited >= patience || closed {
			g.complete(lease, part)
		} else {
			wait = min(wait, patience-waited)
		}
	}
	if len(g.ready) > 0 && !g.Full() && !closed {
		linger := g.linger
		switch {
		case g.count.Load() >= few:
		case g.steady(now) && !slices.ContainsFunc(g.ready, (*batch).isAwaited):
			linger = max(linger, leisure)
		case g.soon(patience) > 1:
			linger = max(linger, patience)
		}
		if waited := now.Sub(g.ready[0].since); waited < linger {
			return b, min(wait, linger-waited)
		}
	}
	if n := g.count.Load(); n > 0 && n < few {
		g.completeFew()
	}
	for len(g.ready) > 0 && (len(b.outcomes) == 0 || len(b.outcomes)+len(g.ready[0].outcomes) <= g.largest) {
		b.add(g.ready[0])
		g.ready[0] = nil
		g.ready = g.ready[1:]
	}
	g.count.Add(-int64(len(b.outcomes)))
	g.room.Broadcast()
	g.going = b
	return b, wait
}

// steady reports whether outcomes arrive one after the other, so that as many are likely to arrive again within
// leisure. The caller holds the lock.
func (g *Gatherer) steady(now time.Time) bool {
	first := g.lately[company-1]
	return now.Sub(first) < leisure && g.lately[0].Sub(first) > g.linger
}

func (g *Gatherer) written() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.going = batch{}
}

// Tokens returns the leases of all outcomes that are not known to be stored. It may return some more than once.
func (g *Gatherer) Tokens() (tokens []store.Token) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for lease := range g.open {
		tokens = append(tokens, lease)
	}
	for _, b := range append([]*batch{&g.going}, g.ready...) {
		tokens = b.tokens(tokens)
	}
	if g.lent != nil {
		tokens = g.lent.tokens(tokens)
	}
	for i := range g.aside {
		tokens = append(tokens, g.aside[i].Task.Lease)
	}
	return tokens
}

// completeFew adds the outcomes that wait for others of their claim to a small write, because they would otherwise be
// the next one. The caller holds the lock.
func (g *Gatherer) completeFew() {
	for lease, part := range g.open {
		if len(part.outcomes) < few {
			g.complete(lease, part)
		}
	}
}
