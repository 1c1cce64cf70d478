package tusk

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// How calls of Puller.Claim wait for tasks.

const (
	maxLooking = 2 // waiting calls that may claim at a time

	firstPause, longestPause = 50 * time.Millisecond, time.Second // between claims, if the engine sends no hints
)

// watches are the watches for the queues that calls wait for.
type watches struct {
	looking chan struct{} // one place for each call that claims

	mu sync.Mutex
	of map[string]*watch // by the names of the queues
}

// watch is shared by the calls that wait for tasks of the same queues: if one of them finds no tasks, there are
// none for the others either.
type watch struct {
	all    *watches
	queues []string
	calls  int
	vain   time.Time     // when the latest claim that found nothing began
	told   time.Time     // when the latest hint came
	hint   chan struct{} // closed at the next hint
}

func newWatches() *watches {
	return &watches{looking: make(chan struct{}, maxLooking), of: map[string]*watch{}}
}

// join returns the watch for some queues. The caller must leave it.
func (w *watches) join(queues []string) *watch {
	queues = slices.Compact(slices.Sorted(slices.Values(queues)))
	name := strings.Join(queues, " ")
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.of[name] == nil {
		w.of[name] = &watch{all: w, queues: queues, hint: make(chan struct{})}
	}
	w.of[name].calls++
	return w.of[name]
}

func (o *watch) leave() {
	o.all.mu.Lock()
	defer o.all.mu.Unlock()
	if o.calls--; o.calls == 0 {
		delete(o.all.of, strings.Join(o.queues, " "))
	}
}

// wake tells the calls that wait for any of the queues that there may be tasks. No queues means all queues.
func (w *watches) wake(queues []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.of {
		if len(queues) == 0 || slices.ContainsFunc(queues, func(q string) bool { return slices.Contains(o.queues, q) }) {
			o.told = time.Now()
			close(o.hint)
			o.hint = make(chan struct{})
		}
	}
}

// hinted returns a channel that is closed at the next hint.
func (o *watch) hinted() <-chan struct{} {
	o.all.mu.Lock()
	defer o.all.mu.Unlock()
	return o.hint
}

func (o *watch) toldAt() time.Time {
	o.all.mu.Lock()
	defer o.all.mu.Unlock()
	return o.told
}

// knows reports whether a claim that began after since has found nothing.
func (o *watch) knows(since time.Time) bool {
	o.all.mu.Lock()
	defer o.all.mu.Unlock()
	return o.vain.After(since)
}

func (o *watch) foundNothing(begun time.Time) {
	o.all.mu.Lock()
	defer o.all.mu.Unlock()
	if begun.After(o.vain) {
		o.vain = begun
	}
}

// wait claims repeatedly until it has tasks or the time is over: when there may be tasks, and occasionally in
// between.
func (p *Puller) wait(ctx context.Context, r Pull) ([]Lent, error) {
	o := p.watches.join(r.Queues)
	defer o.leave()
	since, deadline := time.Now(), time.Now().Add(r.Wait)
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		hint := o.hinted()
		lent, err := p.look(ctx, r, o, since)
		left := time.Until(deadline)
		if err != nil || len(lent) > 0 || left <= 0 {
			return lent, err
		}
		timer := time.NewTimer(min(left, pause-rand.N(pause/4)))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, nil
		case <-p.closed:
			timer.Stop()
			return nil, ErrShutdown
		case <-hint:
			timer.Stop()
			since = o.toldAt()
		case <-timer.C:
			since = time.Now().Add(-pause / 2)
		}
	}
}

// look claims once, unless a claim that began after since has found nothing. This way, many waiting calls keep
// only a few connections busy.
func (p *Puller) look(ctx context.Context, r Pull, o *watch, since time.Time) ([]Lent, error) {
	select {
	case p.watches.looking <- struct{}{}:
		defer func() { <-p.watches.looking }()
	case <-ctx.Done():
		return nil, nil
	case <-p.closed:
		return nil, ErrShutdown
	}
	if o.knows(since) {
		return nil, nil
	}
	begun := time.Now()
	lent, found, err := p.claim(ctx, r)
	if err == nil && !found && ctx.Err() == nil {
		o.foundNothing(begun)
	}
	return lent, err
}

func (p *Puller) hear(h store.Hint) {
	if h.ForWorkers() {
		p.watches.wake(h.Queues)
	}
}
