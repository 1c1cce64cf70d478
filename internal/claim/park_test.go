package claim

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// lot is a store that claims may be parked with.
type lot struct {
	*counter
	parked []*store.Parked
}

func (l *lot) Park(p *store.Parked) (recall func()) {
	l.parked = append(l.parked, p)
	return func() {
		for i, other := range l.parked {
			if other == p {
				l.parked = append(l.parked[:i], l.parked[i+1:]...)
			}
		}
	}
}

// use begins the parked claim. There must be one.
func (l *lot) use(t *testing.T) *store.Parked {
	t.Helper()
	if len(l.parked) != 1 || !l.parked[0].Begin("q") {
		t.Fatalf("%d claims are parked, or this one does not begin", len(l.parked))
	}
	p := l.parked[0]
	l.parked = nil
	return p
}

func (w *worker) parks(l *lot) *Source {
	s := w.source(l.counter, "q")
	s.o.Parker, s.o.Ready, s.o.Prompt = l, func(queue string) bool { return queue == "q" }, func() bool { return true }
	return s
}

var leased = []store.Task{{Kind: "k"}}

func TestAnIdleSourceParksAClaimAndTakesWhatItGetsWithoutAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, w := &lot{counter: &counter{}}, &worker{id: store.ID{1}, room: 10}
		s := w.parks(l)
		run(t, s, func() {
			synctest.Wait()
			for n := range 5 {
				p := l.use(t)
				if asked := s.Asked(); len(asked) != 1 || asked[0] != p.Request.Token {
					t.Errorf("while it is used: %v are asked for", asked)
				}
				p.Answer(leased, time.Now(), nil)
				synctest.Wait()
				if w.taken != n+1 || len(l.requests) != 1 || len(s.Asked()) != 0 {
					t.Errorf("%d tasks were taken, with %d claims; asked for: %v", w.taken, len(l.requests), s.Asked())
				}
			}
			time.Sleep(promptPause + 10*time.Millisecond)
			synctest.Wait()
			if len(l.requests) != 2 {
				t.Errorf("%d claims after a pause, want the poll that was due", len(l.requests))
			}
		})
		if err := s.Settle(context.Background()); err != nil || len(l.parked) != 0 {
			t.Errorf("at the end %d are parked, %v", len(l.parked), err)
		}
	})
}

func TestAHintIsFollowedByAClaimAlthoughOneIsParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, w := &lot{counter: &counter{}}, &worker{id: store.ID{1}, room: 10}
		s := w.parks(l)
		run(t, s, func() {
			synctest.Wait()
			l.stock = 3
			s.Hint("q")
			synctest.Wait()
			if w.taken != 3 || len(l.parked) != 1 {
				t.Errorf("%d tasks were taken, %d claims are parked", w.taken, len(l.parked))
			}
			p := l.use(t)
			l.stock, w.room = 10, 5
			s.Hint("q")
			synctest.Wait()
			if w.taken != 7 {
				t.Errorf("%d tasks were taken, want room for the one that is being stored", w.taken)
			}
			p.Answer(leased, time.Now(), nil)
			synctest.Wait()
			if w.taken != 8 || w.room != 0 {
				t.Errorf("%d tasks were taken, there is room for %d", w.taken, w.room)
			}
		})
	})
}

func TestAParkedClaimWithoutAnAnswerIsRepeatedWithItsToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, w := &lot{counter: &counter{}}, &worker{id: store.ID{1}, room: 10}
		s := w.parks(l)
		var p *store.Parked
		run(t, s, func() {
			synctest.Wait()
			p = l.use(t)
			l.lent[p.Request.Token] = leased
			p.Answer(nil, time.Now(), errLost)
			synctest.Wait()
		})
		if r := l.requests[1]; !r.Again || r.Token != p.Request.Token || w.taken != 1 {
			t.Errorf("%d tasks were taken; it asked %+v", w.taken, r)
		}
	})
}

func TestAtTheEndASourceWaitsForAParkedClaimThatIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, w := &lot{counter: &counter{}}, &worker{id: store.ID{1}, room: 10}
		s := w.parks(l)
		run(t, s, synctest.Wait)
		p := l.use(t)
		l.lent[p.Request.Token] = leased
		go func() { time.Sleep(time.Second); p.Answer(nil, time.Now(), errLost) }()
		began := time.Now()
		if err := s.Settle(context.Background()); err != nil || w.taken != 1 || time.Since(began) < time.Second {
			t.Errorf("%d tasks were taken after %v, %v", w.taken, time.Since(began), err)
		}
		s = w.parks(l)
		run(t, s, synctest.Wait)
		l.use(t)
		ctx, done := context.WithTimeout(context.Background(), time.Second)
		defer done()
		if err := s.Settle(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("without an answer: %v", err)
		}
	})
}

// An enqueue may wait for a lock as long as a user's transaction lasts. It must not hold up the worker for that long.
func TestAParkedClaimThatIsUsedForTooLongCountsAsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, w := &lot{counter: &counter{}}, &worker{id: store.ID{1}, room: 1}
		s := w.parks(l)
		run(t, s, func() {
			synctest.Wait()
			p := l.use(t)
			l.stock = 5
			s.Hint("q")
			time.Sleep(parkedWithin - time.Second)
			synctest.Wait()
			if w.taken != 0 {
				t.Errorf("%d tasks were taken while one may still come", w.taken)
			}
			s.Wake()
			time.Sleep(3 * time.Second)
			synctest.Wait()
			if w.taken != 1 {
				t.Errorf("%d tasks were taken, want 1", w.taken)
			}
			p.Answer(leased, time.Now(), nil) // too late
			synctest.Wait()
			if w.taken != 1 || w.room != 0 {
				t.Errorf("%d tasks were taken, there is room for %d", w.taken, w.room)
			}
		})
		s = w.parks(l)
		l.stock, w.room = 0, 1
		run(t, s, synctest.Wait)
		l.use(t)
		if err := s.Settle(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

func TestAParkedClaimDoesNotBeginForAnotherIdentityOrAWorkerThatIsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, w := &lot{counter: &counter{}}, &worker{id: store.ID{1}, room: 10}
		s := w.parks(l)
		run(t, s, func() {
			synctest.Wait()
			p := l.parked[0]
			w.id = store.ID{2}
			if p.Begin("q") {
				t.Error("it began for a worker that has another identity")
			}
			s.Hint("q")
			synctest.Wait()
			if len(l.parked) != 1 || l.parked[0].Request.Worker != w.id || p.Begin("q") {
				t.Errorf("%d are parked", len(l.parked))
			}
			if l.parked[0].Begin("p") {
				t.Error("it began for a queue that the worker is not ready for")
			}
		})
	})
}

func TestQueuesWithALimitAreNotParkedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, w := &lot{counter: &counter{}}, &worker{id: store.ID{1}, room: 10}
		s := w.parks(l)
		s.o.Asks = func() []Ask { return []Ask{{Queues: []string{"q"}, Most: 2}} }
		run(t, s, func() {
			synctest.Wait()
			if len(l.parked) != 0 {
				t.Errorf("%+v is parked", l.parked[0].Request)
			}
		})
	})
}
