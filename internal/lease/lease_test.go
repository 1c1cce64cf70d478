package lease

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tuskqueue/tusk/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	ttl   = 30 * time.Second
	every = 10 * time.Second
)

// beat is a beat that reached the store.
type beat struct {
	at time.Duration
	store.Beat
}

// chest is a heart with a fake store, in simulated time.
type chest struct {
	mu     sync.Mutex
	began  time.Time
	beats  []beat
	extend func(ctx context.Context, n int) ([]store.Stop, error) // answers the nth beat
	notes  []store.Note
	noted  int
	stops  []store.Stop
	lost   []time.Duration
	ids    byte
	about  store.Worker
	idles  bool // the worker holds nothing
	rest   time.Duration
	heart  *Heart
}

func (c *chest) Extend(ctx context.Context, b store.Beat) ([]store.Stop, error) {
	c.mu.Lock()
	c.beats = append(c.beats, beat{time.Since(c.began), b})
	n := len(c.beats)
	c.mu.Unlock()
	if c.extend == nil {
		return nil, nil
	}
	return c.extend(ctx, n)
}

// live runs a heart during a test.
func live(t *testing.T, c *chest, test func()) {
	synctest.Test(t, func(t *testing.T) {
		c.began, c.about.Host = time.Now(), "h"
		c.heart = New(c, Options{
			Worker: func() store.Worker { c.mu.Lock(); defer c.mu.Unlock(); return c.about }, TTL: ttl, Every: every,
			Rest: c.rest, Idles: func() bool { c.mu.Lock(); defer c.mu.Unlock(); return c.idles },
			NewID: func() store.ID { c.mu.Lock(); defer c.mu.Unlock(); c.ids++; return store.ID{c.ids} },
			Holds: func() []store.Token {
				c.mu.Lock()
				defer c.mu.Unlock()
				return []store.Token{{byte(len(c.beats))}}
			},
			Notes: func() []store.Note { c.mu.Lock(); defer c.mu.Unlock(); return c.notes },
			Noted: func(notes []store.Note) {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.notes = c.notes[len(notes):]
				c.noted += len(notes)
			},
			Stop: func(stops []store.Stop) { c.mu.Lock(); c.stops = append(c.stops, stops...); c.mu.Unlock() },
			Lost: func() { c.mu.Lock(); c.lost = append(c.lost, time.Since(c.began)); c.mu.Unlock() },
			Away: func() { c.mu.Lock(); c.lost = append(c.lost, time.Since(c.began)); c.mu.Unlock() },
			Log:  slog.New(slog.NewTextHandler(io.Discard, nil)),
		})
		halt := make(chan struct{})
		var loops sync.WaitGroup
		ctx, cancel := context.WithCancel(context.Background())
		for _, l := range c.heart.Loops() {
			loops.Go(func() { l.Run(ctx, halt) })
		}
		test()
		close(halt)
		cancel()
		loops.Wait()
	})
}

var errAway = errors.New("the database is away")

func TestItBeatsAndMayClaimFromTheFirstBeatOn(t *testing.T) {
	c := &chest{}
	live(t, c, func() {
		if _, alive := c.heart.Worker(); alive {
			t.Error("alive before the first beat")
		}
		synctest.Wait()
		if id, alive := c.heart.Worker(); !alive || id != (store.ID{1}) {
			t.Errorf("after the first beat: %v, alive %v", id, alive)
		}
		time.Sleep(5*time.Minute + time.Second)
	})
	for i := 1; i < len(c.beats); i++ {
		if d := c.beats[i].at - c.beats[i-1].at; d != every {
			t.Errorf("beat %d came after %v, want %v", i, d, every)
		}
	}
	if len(c.beats) != 31 || c.beats[0].TTL != ttl || c.beats[0].Worker.Host != "h" {
		t.Errorf("%d beats, the first %+v", len(c.beats), c.beats[0])
	}
}

func TestAHeartRestsWhileNothingIsHeldAndBeatsAtOnceWhenSomethingIs(t *testing.T) {
	c := &chest{idles: true, rest: 25 * time.Second}
	sent := func() []beat { c.mu.Lock(); defer c.mu.Unlock(); return slices.Clone(c.beats) }
	live(t, c, func() {
		time.Sleep(51 * time.Second)
		synctest.Wait()
		if b := sent(); len(b) != 3 || b[2].Every != c.rest {
			t.Errorf("while it idles: %+v", b)
		}
		c.mu.Lock()
		c.idles = false
		c.mu.Unlock()
		c.heart.Stir()
		synctest.Wait()
		if b := sent(); len(b) != 4 || b[3].Every != every {
			t.Errorf("when it was stirred: %+v", b)
		}
		c.heart.Stir()
		synctest.Wait()
		if b := sent(); len(b) != 4 {
			t.Errorf("it beats whenever it is stirred: %+v", b)
		}
		time.Sleep(every + time.Second/2)
		synctest.Wait()
		if b := sent(); len(b) != 5 {
			t.Errorf("while it works: %+v", b)
		}
	})
}

func TestAHeartThatNobodyStirsSeesWithinASecondThatItNoLongerIdles(t *testing.T) {
	c := &chest{idles: true, rest: 25 * time.Second}
	live(t, c, func() {
		time.Sleep(2500 * time.Millisecond)
		c.mu.Lock()
		c.idles = false
		c.mu.Unlock()
		time.Sleep(time.Second)
	})
	if len(c.beats) != 2 || c.beats[1].Every != every {
		t.Errorf("%+v", c.beats)
	}
}

func TestWhatIsNewOfTheWorkerIsToldSoon(t *testing.T) {
	c := &chest{}
	live(t, c, func() {
		time.Sleep(time.Second / 2)
		c.mu.Lock()
		c.about.Queues, c.about.Hung = []string{"q"}, 1
		c.mu.Unlock()
		time.Sleep(every / 2)
	})
	if len(c.beats) != 2 || c.beats[1].at > 2*time.Second || len(c.beats[1].Worker.Queues) != 1 ||
		c.beats[1].Worker.Hung != 1 {
		t.Errorf("%+v", c.beats)
	}
}

func TestBeatsAreNumberedAndSayWhichWasTheLastThatWasAnswered(t *testing.T) {
	c := &chest{extend: func(_ context.Context, n int) ([]store.Stop, error) {
		switch n {
		case 3, 4:
			return nil, errAway
		case 6:
			return nil, store.ErrWorkerDead
		}
		return nil, nil
	}}
	live(t, c, func() { time.Sleep(8 * every) })
	want := []int64{0, 1, 2, 2, 2, 5, 0, 7} // what the n-th beat has seen; the sixth beat ends an identity
	if len(c.beats) < len(want) {
		t.Fatalf("only %d beats", len(c.beats))
	}
	for i, seen := range want {
		b := c.beats[i]
		if b.Seq != int64(i+1) || b.Seen != seen {
			t.Errorf("beat %d has the number %d and has seen %d, want %d", i+1, b.Seq, b.Seen, seen)
		}
		if len(b.Holds) != 1 || int(b.Holds[0][0]) != i {
			t.Errorf("beat %d says %v, which is not what was held when it was sent", i+1, b.Holds)
		}
	}
}

func TestAttemptsAreGivenUpBeforeTheStoreCanTakeThem(t *testing.T) {
	for name, away := range map[string]func(ctx context.Context) error{
		"every beat fails": func(context.Context) error { return errAway },
		"every beat hangs": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			c := &chest{extend: func(ctx context.Context, n int) ([]store.Stop, error) {
				if n == 1 {
					return nil, nil
				}
				return nil, away(ctx)
			}}
			live(t, c, func() {
				time.Sleep(ttl)
				if id, alive := c.heart.Worker(); alive || id == (store.ID{1}) {
					t.Errorf("still %v, alive %v", id, alive)
				}
			})
			// The only successful beat was sent at 0. A third of the lease is left.
			if len(c.lost) != 1 || c.lost[0] < ttl*2/3 || c.lost[0] > ttl*2/3+ttl/6 {
				t.Errorf("attempts were given up at %v, want about %v, once", c.lost, ttl*2/3)
			}
		})
	}
}

// The database is away for 8 seconds when a beat is due.
func TestADatabaseThatIsBackIsAskedWithinTwoSeconds(t *testing.T) {
	for range 20 { // the pauses are random
		back := every + 8*time.Second
		c := &chest{}
		c.extend = func(context.Context, int) ([]store.Stop, error) {
			if since := time.Since(c.began); since >= every && since < back {
				return nil, errAway
			}
			return nil, nil
		}
		live(t, c, func() { time.Sleep(ttl) })
		next := slices.IndexFunc(c.beats, func(b beat) bool { return b.at >= back })
		if next < 0 || c.beats[next].at > back+2*time.Second || len(c.lost) > 0 {
			t.Fatalf("the beat after %v is the one of %v; attempts were given up at %v", back, c.beats[next:], c.lost)
		}
	}
}

func TestASlowBeatCountsFromWhenItWasSent(t *testing.T) {
	c := &chest{extend: func(ctx context.Context, n int) ([]store.Stop, error) {
		if n > 2 {
			return nil, errAway
		}
		time.Sleep(9 * time.Second)
		return nil, nil
	}}
	live(t, c, func() { time.Sleep(ttl + every) })
	good := c.beats[1].at
	if len(c.lost) != 1 || c.lost[0] < good+ttl*2/3 || c.lost[0] >= good+ttl {
		t.Errorf("given up at %v, the last good beat was sent at %v", c.lost, good)
	}
}

func TestTheDeadGoOnUnderAnotherIdentity(t *testing.T) {
	c := &chest{extend: func(_ context.Context, n int) ([]store.Stop, error) {
		if n == 2 {
			return nil, store.ErrWorkerDead
		}
		return nil, nil
	}}
	live(t, c, func() { time.Sleep(time.Minute) })
	if want := []time.Duration{every}; !slices.Equal(c.lost, want) {
		t.Errorf("attempts were ended at %v, want %v", c.lost, want)
	}
	if c.beats[2].Worker.ID != (store.ID{2}) || c.beats[2].at != every {
		t.Errorf("next beat: %+v, want another identity at once", c.beats[2])
	}
}

func TestABeatThatComesBackAfterARenewalDoesNotReviveTheNewIdentity(t *testing.T) {
	c := &chest{extend: func(_ context.Context, n int) ([]store.Stop, error) {
		if n == 1 {
			time.Sleep(5 * time.Second)
		}
		return nil, nil
	}}
	live(t, c, func() {
		time.Sleep(time.Second)
		c.heart.Renew(store.ID{1})
		time.Sleep(4500 * time.Millisecond)
		synctest.Wait()
		if first := c.beats[1]; first.Worker.ID != (store.ID{2}) {
			t.Errorf("the new identity did not beat by itself: %+v", first)
		}
	})
	if len(c.lost) != 1 {
		t.Errorf("lost %v", c.lost)
	}
}

func TestRenewingSomebodyElseChangesNothing(t *testing.T) {
	c := &chest{}
	live(t, c, func() {
		synctest.Wait()
		c.heart.Renew(store.ID{77})
		if id, alive := c.heart.Worker(); id != (store.ID{1}) || !alive || len(c.lost) > 0 {
			t.Errorf("%v, alive %v, lost %v", id, alive, c.lost)
		}
	})
}

func TestNotesAreSentSoonAndAgainUntilTheyAreStored(t *testing.T) {
	c := &chest{extend: func(_ context.Context, n int) ([]store.Stop, error) {
		if n == 2 || n == 3 {
			return nil, errAway
		}
		return nil, nil
	}}
	live(t, c, func() {
		time.Sleep(time.Millisecond)
		c.mu.Lock()
		c.notes = []store.Note{{ID: store.ID{5}}}
		c.mu.Unlock()
		time.Sleep(3 * time.Second)
	})
	if c.noted != 1 || len(c.beats) != 4 {
		t.Fatalf("%d beats, %d notes stored", len(c.beats), c.noted)
	}
	for _, b := range c.beats[1:] {
		if len(b.Notes) != 1 || b.at > 2*time.Second {
			t.Errorf("beat at %v with %d notes", b.at, len(b.Notes))
		}
	}
}

func TestOrdersToStopArePassedOn(t *testing.T) {
	stop := store.Stop{ID: store.ID{7}, Lease: store.Token{1}}
	c := &chest{extend: func(_ context.Context, n int) ([]store.Stop, error) { return []store.Stop{stop}, nil }}
	live(t, c, func() { time.Sleep(every + time.Second) })
	if want := []store.Stop{stop, stop}; !slices.Equal(c.stops, want) {
		t.Errorf("passed on %v, want it at both beats", c.stops)
	}
}

func TestWhoNeverBeatNeedNotSignOff(t *testing.T) {
	c := &chest{extend: func(context.Context, int) ([]store.Stop, error) { return nil, errAway }}
	live(t, c, func() {
		synctest.Wait()
		if err := c.heart.SignOff(t.Context()); err != nil {
			t.Error(err)
		}
	})
	if len(c.beats) != 1 {
		t.Errorf("%d beats", len(c.beats))
	}
	c = &chest{}
	live(t, c, func() {
		synctest.Wait()
		if err := c.heart.SignOff(t.Context()); err != nil {
			t.Error(err)
		}
	})
	if last := c.beats[len(c.beats)-1]; last.TTL != 0 || last.Worker.ID != (store.ID{1}) {
		t.Errorf("signed off by %+v", last)
	}
}

// A user's transaction may hold the note of a task. The beat still counts, and the note is sent
// again.
func TestABeatCountsThoughANoteIsHeld(t *testing.T) {
	c := &chest{notes: []store.Note{{ID: store.ID{1}}, {ID: store.ID{2}}}}
	c.extend = func(context.Context, int) ([]store.Stop, error) { return nil, &store.HeldError{Tasks: []store.ID{{2}}} }
	live(t, c, func() { time.Sleep(5 * ttl) })
	if len(c.lost) > 0 || c.ids != 1 {
		t.Errorf("attempts were stopped at %v, %d identities", c.lost, c.ids)
	}
	if c.noted == 0 || len(c.beats) < 2 || len(c.beats[1].Notes) != 1 {
		t.Errorf("%d notes were stored; the second beat: %+v", c.noted, c.beats[1])
	}
}

func TestTheWatchOverALongLeaseLooksEveryMinute(t *testing.T) {
	h := New(&chest{}, Options{NewID: func() store.ID { return store.ID{1} }, TTL: 24 * time.Hour, Every: time.Minute,
		Log: slog.New(slog.DiscardHandler)})
	if pause, err := h.check(t.Context()); err != nil || pause != time.Minute {
		t.Errorf("%v, %v", pause, err)
	}
}
