package claim

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// exchanger is a counter that takes outcomes along. ends says what becomes of them.
type exchanger struct {
	*counter
	exchanges []store.ClaimRequest
	ends      func(call int) (lost bool, err error)
}

func (e *exchanger) Exchange(ctx context.Context, o store.Outcome, r store.ClaimRequest) (x store.Exchanged) {
	e.exchanges = append(e.exchanges, r)
	x.Tasks, x.ClaimErr = e.Claim(ctx, r)
	if e.ends != nil {
		x.Lost, x.FinishErr = e.ends(len(e.exchanges))
	}
	return x
}

// shelf lends outcomes, and remembers their results.
type shelf struct {
	left    int
	settled []string
}

func (s *shelf) Lend() *store.Outcome {
	if s.left == 0 {
		return nil
	}
	s.left--
	return &store.Outcome{Task: &store.Task{}}
}

func (s *shelf) Settle(lost bool, err error) {
	switch {
	case err != nil:
		s.left++
		s.settled = append(s.settled, "back")
	case lost:
		s.settled = append(s.settled, "lost")
	default:
		s.settled = append(s.settled, "stored")
	}
}

func (w *worker) along(e *exchanger, s *shelf) *Source {
	source := w.source(e.counter, "q")
	source.o.Along, source.o.Lender = e, s
	return source
}

func TestAClaimOfOneTaskTakesTheOutcomeAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, shelf := &exchanger{counter: &counter{stock: 5}}, &shelf{}
		w := &worker{id: store.ID{1}, room: 1}
		s := w.along(e, shelf)
		took := 0
		s.o.Take = func(tasks []store.Task, _ time.Time) { took += len(tasks); shelf.left++ } // each is done at once
		run(t, s, func() { time.Sleep(100 * time.Millisecond) })
		if took != 5 || shelf.left != 0 || !slices.Equal(shelf.settled, slices.Repeat([]string{"stored"}, 5)) {
			t.Errorf("%d tasks, %d outcomes left, settled: %v", took, shelf.left, shelf.settled)
		}
		if len(e.exchanges) != 5 || e.requests[0].Limit != 1 {
			t.Errorf("%d exchanges, claims: %+v", len(e.exchanges), e.requests)
		}
	})
}

func TestAClaimOfMoreThanOneTaskTakesNothingAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, shelf := &exchanger{counter: &counter{stock: 5}}, &shelf{left: 1}
		w := &worker{id: store.ID{1}, room: 10}
		run(t, w.along(e, shelf), func() { time.Sleep(time.Millisecond) })
		if w.taken != 5 || len(e.exchanges) > 0 || shelf.left != 1 {
			t.Errorf("%d tasks, %d exchanges", w.taken, len(e.exchanges))
		}
	})
}

// One answer may come without the other. Each is asked for only until it has come.
func TestHalfAnExchangeThatFailsIsRepeatedByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, shelf := &exchanger{counter: &counter{stock: 3}}, &shelf{left: 3}
		e.fail = func(call int) (before, after error) {
			if call == 1 {
				return nil, errLost // the first claim took effect
			}
			return nil, nil
		}
		e.ends = func(call int) (bool, error) {
			if call == 2 {
				return false, errLost
			}
			return call == 3, nil
		}
		w := &worker{id: store.ID{1}, room: 1}
		s := w.along(e, shelf)
		took := 0
		s.o.Take = func(tasks []store.Task, _ time.Time) { took += len(tasks) }
		run(t, s, func() { time.Sleep(500 * time.Millisecond) })
		if took != 3 {
			t.Errorf("%d tasks were taken, want 3", took)
		}
		if again := e.requests[1]; !again.Again || again.Token != e.requests[0].Token || len(e.exchanges) != 4 {
			t.Errorf("%d exchanges; after the first: %+v", len(e.exchanges), again)
		}
		if want := []string{"stored", "back", "lost", "stored"}; !slices.Equal(shelf.settled, want) {
			t.Errorf("settled: %v, want %v", shelf.settled, want)
		}
	})
}

func TestAnOutcomeComesBackFromAnExchangeThatPanics(t *testing.T) {
	e, shelf := &exchanger{counter: &counter{}}, &shelf{left: 1}
	e.ends = func(int) (bool, error) { panic("broken") }
	w := &worker{id: store.ID{1}, room: 1}
	s := w.along(e, shelf)
	func() {
		defer func() { recover() }()
		s.claim(t.Context())
	}()
	if shelf.left != 1 {
		t.Error("the outcome is lost")
	}
}

func TestTheDeadBringTheirOutcomesAllTheSame(t *testing.T) {
	e, shelf := &exchanger{counter: &counter{}}, &shelf{left: 1}
	e.fail = func(int) (before, after error) { return store.ErrWorkerDead, nil }
	w := &worker{id: store.ID{1}, room: 1}
	s := w.along(e, shelf)
	if _, err := s.claim(t.Context()); err != nil || len(w.died) != 1 || !slices.Equal(shelf.settled, []string{"stored"}) {
		t.Errorf("%v, died: %v, settled: %v", err, w.died, shelf.settled)
	}
}
