// Package feed polls the queues once a second while there are watchers, and sends the result to all of them: one
// query per second, however many browsers there are.
//
// It may use a tusk.Client. Snapshots go to the event streams of packages server and ui.
package feed

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

// Snapshot is the state at one time.
type Snapshot struct {
	At      time.Time
	Queues  []tusk.Queue
	Workers []store.Worker
	// Minute sums up the current minute and the previous one, by queue and kind.
	Minute []store.Stat
}

// Feed polls for all watchers. Make one with New.
type Feed struct {
	client *tusk.Client
	log    *slog.Logger
	every  time.Duration

	mu       sync.Mutex
	watchers map[chan *Snapshot]string // and who is watching
	guests   map[chan struct{}]string  // the same, for watchers that take no snapshots
	last     *Snapshot
	stop     context.CancelFunc
	done     chan struct{}
	closed   bool
	gaveUp   Discarded
	counting chan struct{} // held while discarded tasks are counted
}

// MaxWatchers is the largest number of watchers at a time, and OwnWatchers the largest number with the same identity.
const (
	MaxWatchers = 1000
	OwnWatchers = 50
)

// New returns a feed.
func New(client *tusk.Client, log *slog.Logger) *Feed {
	return &Feed{client: client, log: log, every: time.Second, watchers: map[chan *Snapshot]string{},
		guests: map[chan struct{}]string{}, counting: make(chan struct{}, 1)}
}

// Refused waits a second, or until ctx ends. Otherwise a refused watcher that tries again at once would keep a
// processor busy.
func Refused(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(time.Second):
	}
}

// Watch returns a channel of snapshots, and a function that ends the watch. The latest snapshot is sent at once if
// there is one. A slow watcher misses snapshots and gets the latest. The channel is closed with the feed. It is nil
// if there are too many watchers.
func (f *Feed) Watch(who string) (snapshots <-chan *Snapshot, leave func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.room(who) {
		return nil, func() {}
	}
	w := make(chan *Snapshot, 1)
	f.watchers[w] = who
	if len(f.watchers) == 1 {
		ctx, stop := context.WithCancel(context.Background())
		f.stop, f.done, f.last = stop, make(chan struct{}), nil
		go f.run(ctx, f.done)
	} else if f.last != nil {
		w <- f.last
	}
	return w, func() { f.leave(w) }
}

// Join counts as a watcher, for streams that look at something other than queues and take no snapshots. The channel
// is closed with the feed. It is nil if there are too many watchers.
func (f *Feed) Join(who string) (over <-chan struct{}, leave func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.room(who) {
		return nil, func() {}
	}
	g := make(chan struct{})
	f.guests[g] = who
	return g, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.guests, g)
	}
}

// room reports whether there is room for another watcher.
func (f *Feed) room(who string) bool {
	if f.closed || len(f.watchers)+len(f.guests) >= MaxWatchers {
		return false
	}
	own := 0
	for _, other := range f.watchers {
		if other == who {
			own++
		}
	}
	for _, other := range f.guests {
		if other == who {
			own++
		}
	}
	return own < OwnWatchers
}

// Close ends all watches.
func (f *Feed) Close() {
	f.mu.Lock()
	f.closed = true
	for w := range f.watchers {
		delete(f.watchers, w)
		close(w)
	}
	for g := range f.guests {
		delete(f.guests, g)
		close(g)
	}
	stop, done := f.stop, f.done
	f.mu.Unlock()
	if stop != nil {
		stop()
		<-done
	}
}

func (f *Feed) leave(w chan *Snapshot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.watchers[w]; !ok {
		return
	}
	delete(f.watchers, w)
	if len(f.watchers) == 0 {
		f.stop()
	}
}

func (f *Feed) run(ctx context.Context, done chan struct{}) {
	defer close(done)
	ticker := time.NewTicker(f.every)
	defer ticker.Stop()
	for {
		if s, err := f.Look(ctx); err == nil {
			f.tell(ctx, s)
		} else if ctx.Err() == nil {
			f.log.Warn("feed", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// Look takes a snapshot now.
func (f *Feed) Look(ctx context.Context) (*Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	s := &Snapshot{At: time.Now()}
	var err error
	if s.Queues, s.Workers, err = f.client.QueuesAndWorkers(ctx); err != nil {
		return nil, err
	}
	s.Minute, err = f.client.Stats(ctx, store.StatsFilter{Bucket: time.Minute,
		From: s.At.Truncate(time.Minute).Add(-time.Minute)})
	return s, err
}

// Recent returns a snapshot that is at most age old, because counting the tasks in the queues takes longer than most
// pages.
func (f *Feed) Recent(ctx context.Context, age time.Duration) (*Snapshot, error) {
	f.mu.Lock()
	s := f.last
	f.mu.Unlock()
	if s != nil && time.Since(s.At) < age {
		return s, nil
	}
	s, err := f.Look(ctx)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	if f.last == nil || f.last.At.Before(s.At) {
		f.last = s
	}
	f.mu.Unlock()
	return s, nil
}

// namesAge is the greatest age of the queue names that Names returns.
const namesAge = 10 * time.Second

// Names returns the names of the queues as they were a few seconds ago.
func (f *Feed) Names(ctx context.Context) ([]string, error) {
	s, err := f.Recent(ctx, namesAge)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(s.Queues))
	for i, q := range s.Queues {
		names[i] = q.Name
	}
	return names, nil
}

// Discarded counts the discarded tasks by queue, using the counts of the error groups.
type Discarded struct {
	At    time.Time // zero if they were never counted
	Tasks map[string]int64
	More  bool // there are more error groups than were read
}

const (
	discardedAge    = 10 * time.Second
	discardedGroups = 1000
)

// Discarded returns the counts of a few seconds ago. All watchers ask at the same time; one of them counts.
func (f *Feed) Discarded(ctx context.Context) (Discarded, error) {
	if known := f.KnownDiscarded(); time.Since(known.At) < discardedAge {
		return known, nil
	}
	select {
	case f.counting <- struct{}{}:
		defer func() { <-f.counting }()
	case <-ctx.Done():
		return Discarded{}, ctx.Err()
	}
	if known := f.KnownDiscarded(); time.Since(known.At) < discardedAge {
		return known, nil
	}
	groups, err := f.client.Errors(ctx, store.ErrorFilter{Limit: discardedGroups})
	if err != nil {
		return Discarded{}, err
	}
	d := Discarded{At: time.Now(), Tasks: map[string]int64{}, More: len(groups) == discardedGroups}
	for _, g := range groups {
		d.Tasks[g.Queue] += g.Dead
	}
	f.mu.Lock()
	f.gaveUp = d
	f.mu.Unlock()
	return d, nil
}

// KnownDiscarded returns what Discarded returned last, however old.
func (f *Feed) KnownDiscarded() Discarded {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.gaveUp
}

func (f *Feed) tell(ctx context.Context, s *Snapshot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	f.last = s
	for w := range f.watchers {
		select {
		case <-w: // the snapshot for which it was too slow
		default:
		}
		w <- s
	}
}
