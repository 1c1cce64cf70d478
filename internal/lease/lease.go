// Package lease sends the heartbeats that extend the worker's leases, and stops attempts when the
// store or the worker's own clock requires it.
//
// It may use only a store's Extend. Notes come from package run; requests to stop go back to it.
package lease

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/internal/loop"
	"github.com/tuskqueue/tusk/store"
)

// Extender is the part of a store that a Heart needs.
type Extender interface {
	Extend(ctx context.Context, b store.Beat) ([]store.Stop, error)
}

// Options of a Heart. All but Rest and Idles are required.
type Options struct {
	Worker func() store.Worker      // describes the worker in a beat; its ID is ignored
	NewID  func() store.ID          // generates identities
	TTL    time.Duration            // how long leases last without a beat
	Every  time.Duration            // time between beats
	Rest   time.Duration            // time between beats while the worker idles; 0 means Every
	Idles  func() bool              // reports whether the worker has and finds no tasks; called only if Rest is set
	Holds  func() []store.Token     // tokens of pending claims, and of tasks without an acknowledged outcome
	Notes  func() []store.Note      // what handlers recorded and is not stored yet
	Noted  func(notes []store.Note) // called with the notes that are stored
	Stop   func(stops []store.Stop) // ends attempts whose tasks were cancelled
	Lost   func()                   // ends all attempts, because the store says that their leases are lost
	Away   func()                   // ends all attempts, because the store is unreachable and leases may be lost
	Log    *slog.Logger
}

// Heart sends heartbeats, called beats. Create it with New, then run its Loops.
type Heart struct {
	store Extender
	o     Options
	beat  *loop.Loop
	watch *loop.Loop

	mu    sync.Mutex
	id    store.ID
	good  time.Time     // when the last successful beat was sent; zero if none under this id
	told  store.Worker  // what that beat said about the worker
	alive bool          // at least one beat under this id has succeeded
	every time.Duration // the interval that the last beat announced
	seq   int64         // number of the last beat sent
	seen  int64         // number of the last beat under this id that was answered
}

// New returns a heart with a new identity.
func New(s Extender, o Options) *Heart {
	h := &Heart{store: s, o: o, id: o.NewID()}
	h.beat = loop.New("heartbeat", o.TTL/3, o.Log, h.extend)
	// Retries stay frequent: a database that is back is asked before check gives up the leases.
	h.beat.Patience = min(o.Every, o.TTL/15)
	h.watch = loop.New("lease watch", time.Minute, o.Log, h.check)
	return h
}

// Loops returns the loops to run: one that sends beats, and one that watches it, even while a beat
// hangs.
func (h *Heart) Loops() []*loop.Loop { return []*loop.Loop{h.beat, h.watch} }

// Worker returns the current identity and whether it may claim.
func (h *Heart) Worker() (store.ID, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.id, h.alive
}

// Renew takes a new identity after the store has declared the current one dead.
func (h *Heart) Renew(dead store.ID) { h.renew(dead, h.o.Lost) }

func (h *Heart) renew(dead store.ID, tell func()) {
	h.mu.Lock()
	if h.id != dead {
		h.mu.Unlock()
		return
	}
	h.id, h.alive, h.good, h.seen = h.o.NewID(), false, time.Time{}, 0
	h.mu.Unlock()
	tell()
	h.beat.Wake()
}

// SignOff tells the store that the worker is leaving.
func (h *Heart) SignOff(ctx context.Context) error {
	if _, alive := h.Worker(); !alive {
		return nil
	}
	_, err := h.store.Extend(ctx, h.next())
	return err
}

// next returns a beat with the next number. Sent unchanged, that beat signs the worker off.
func (h *Heart) next() store.Beat {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seq++
	return store.Beat{Worker: store.Worker{ID: h.id}, Seq: h.seq, Seen: h.seen}
}

// noteEvery is how often extend checks for handlers' notes between two beats.
const noteEvery = time.Second

func (h *Heart) extend(ctx context.Context) (time.Duration, error) {
	notes, about := h.o.Notes(), h.o.Worker()
	if left := h.due(&about); left > 0 && len(notes) == 0 {
		return min(left, noteEvery), nil
	}
	beat := h.next()
	id := beat.Worker.ID
	beat.Worker = about
	beat.Worker.ID = id
	// This comes after h.next: tokens that are claimed from here on are younger than the beat that
	// Seen names.
	beat.TTL, beat.Every, beat.Notes, beat.Holds = h.o.TTL, h.pause(), notes, h.o.Holds()
	sent := time.Now()
	stops, err := h.store.Extend(ctx, beat)
	if errors.Is(err, store.ErrWorkerDead) {
		h.o.Log.Warn("heartbeat: declared dead, going on under a new identity", "worker", id)
		h.Renew(id)
		return 0, nil
	}
	if held := new(store.HeldError); errors.As(err, &held) {
		h.o.Log.Info("heartbeat: some notes are not stored yet", "error", err)
		notes = slices.DeleteFunc(notes, func(n store.Note) bool { return slices.Contains(held.Tasks, n.ID) })
	} else if err != nil {
		return 0, err
	}
	h.o.Noted(notes)
	h.mu.Lock()
	if h.id == id {
		h.good, h.alive, h.seen, h.told, h.every = sent, true, beat.Seq, about, beat.Every
	}
	h.mu.Unlock()
	if len(stops) > 0 {
		h.o.Stop(stops)
	}
	return min(h.o.Every, noteEvery), nil
}

// due returns how long the next beat may wait. If the description of the worker has changed, a beat
// is due at once.
func (h *Heart) due(about *store.Worker) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	every := h.pause()
	if !h.alive || every < h.every || about.Hung != h.told.Hung || !slices.Equal(about.Queues, h.told.Queues) {
		return 0
	}
	return every - time.Since(h.good)
}

// pause is the time between beats.
func (h *Heart) pause() time.Duration {
	if h.o.Rest > 0 && h.o.Idles() {
		return h.o.Rest
	}
	return h.o.Every
}

// Stir makes a resting heart beat at once, because the worker has claimed tasks.
func (h *Heart) Stir() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.every > h.o.Every {
		h.beat.Wake()
	}
}

// Note sends a beat with the notes that are not stored yet at once, or as soon as the current beat is answered.
func (h *Heart) Note() { h.beat.Wake() }

// check gives up the leases before the store can expire them: two thirds of the TTL after the last
// successful beat, by the monotonic clock.
func (h *Heart) check(context.Context) (time.Duration, error) {
	h.mu.Lock()
	id, good := h.id, h.good
	h.mu.Unlock()
	limit := h.o.TTL * 2 / 3
	pause := min(limit/4, time.Minute)
	if good.IsZero() {
		return pause, nil
	}
	if left := limit - time.Since(good); left > 0 {
		return min(left, pause), nil
	}
	if len(h.o.Holds()) > 0 {
		h.o.Log.Error("heartbeat: no beat for two thirds of the lease, stopping all attempts", "worker", id)
	} else {
		h.o.Log.Info("heartbeat: no beat for two thirds of the lease, going on under a new identity", "worker", id)
	}
	h.renew(id, h.o.Away)
	return pause, nil
}
