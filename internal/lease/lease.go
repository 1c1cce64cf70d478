// Package lease keeps a worker alive in the store's eyes: it sends the heartbeat
// by which all the worker's leases live, and ends the attempts that the store, or
// its own clock, says must end.
//
// It may touch a store's Extend and nothing else. Notes come in from package run;
// orders to stop go back to it.
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

// Extender is the part of a store that it needs.
type Extender interface {
	Extend(ctx context.Context, b store.Beat) ([]store.Stop, error)
}

// Options of a Heart. All are needed.
type Options struct {
	Worker func() store.Worker      // what a beat says of the worker; its ID is not read
	NewID  func() store.ID          // mints identities
	TTL    time.Duration            // of a lease without a beat
	Every  time.Duration            // between beats
	Rest   time.Duration            // between beats while it idles; 0: as Every
	Idles  func() bool              // it has nothing and finds nothing; not asked without Rest
	Holds  func() []store.Token     // every token that is asked for, or has tasks whose outcome is not acknowledged
	Notes  func() []store.Note      // what handlers noted and is not stored yet
	Noted  func(notes []store.Note) // these are stored
	Stop   func(stops []store.Stop) // ends attempts that somebody cancelled
	Lost   func()                   // ends all attempts: the store says that their leases are lost
	Away   func()                   // ends all attempts: the store is out of reach, their leases may be lost
	Log    *slog.Logger
}

// Heart beats. Make it with New, then run its Loops.
type Heart struct {
	store Extender
	o     Options
	beat  *loop.Loop
	watch *loop.Loop

	mu    sync.Mutex
	id    store.ID
	good  time.Time     // when the last beat that succeeded was sent; zero: none under this id
	told  store.Worker  // what it said of the worker
	alive bool          // the id has beaten at least once
	every time.Duration // when the last beat said that the next one comes
	seq   int64         // of the last beat that was sent
	seen  int64         // of the last one under this id whose answer came
}

// New makes a heart with a fresh identity.
func New(s Extender, o Options) *Heart {
	h := &Heart{store: s, o: o, id: o.NewID()}
	h.beat = loop.New("heartbeat", o.TTL/3, o.Log, h.extend)
	h.beat.Patience = o.Every
	h.watch = loop.New("lease watch", time.Minute, o.Log, h.check)
	return h
}

// Loops returns what has to run: the beat, and the watch over it that works even
// while a beat hangs.
func (h *Heart) Loops() []*loop.Loop { return []*loop.Loop{h.beat, h.watch} }

// Worker returns the present identity and whether it may claim.
func (h *Heart) Worker() (store.ID, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.id, h.alive
}

// Renew takes on a fresh identity when the store calls the present one dead.
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

// SignOff tells the store that the worker leaves.
func (h *Heart) SignOff(ctx context.Context) error {
	if _, alive := h.Worker(); !alive {
		return nil
	}
	_, err := h.store.Extend(ctx, h.next())
	return err
}

// next makes a beat with a number of its own, which signs the worker off as it is.
func (h *Heart) next() store.Beat {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seq++
	return store.Beat{Worker: store.Worker{ID: h.id}, Seq: h.seq, Seen: h.seen}
}

// noteEvery is how often handlers' notes are looked for between two beats.
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
	// What is asked for after this is younger than the beat whose answer has come.
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

// due is how long the next beat may wait. One that says something new of the worker does
// not wait.
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

// Stir has a heart that rests beat at once: the worker has got something.
func (h *Heart) Stir() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.every > h.o.Every {
		h.beat.Wake()
	}
}

// check gives the leases up before the store can: two thirds of their time after
// the last good beat, by the monotonic clock.
func (h *Heart) check(context.Context) (time.Duration, error) {
	h.mu.Lock()
	id, good := h.id, h.good
	h.mu.Unlock()
	limit := h.o.TTL * 2 / 3
	if good.IsZero() {
		return limit / 4, nil
	}
	if left := limit - time.Since(good); left > 0 {
		return min(left, limit/4), nil
	}
	if len(h.o.Holds()) > 0 {
		h.o.Log.Error("heartbeat: no beat for two thirds of the lease, stopping all attempts", "worker", id)
	} else {
		h.o.Log.Info("heartbeat: no beat for two thirds of the lease, going on under a new identity", "worker", id)
	}
	h.renew(id, h.o.Away)
	return limit / 4, nil
}
