package claim

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tuskqueue/tusk/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counter is a store that has tasks in stock and fails as it is told.
type counter struct {
	mu       sync.Mutex // held while requests change
	stock    int
	requests []store.ClaimRequest
	at       []time.Time
	fail     func(call int) (before, after error)
	lent     map[store.Token][]store.Task
}

// asked returns how many requests came, also while the source runs.
func (c *counter) asked() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.requests)
}

func (c *counter) Claim(_ context.Context, r store.ClaimRequest) ([]store.Task, error) {
	c.mu.Lock()
	c.requests, c.at = append(c.requests, r), append(c.at, time.Now())
	c.mu.Unlock()
	var before, after error
	if c.fail != nil {
		before, after = c.fail(len(c.requests))
	}
	if before != nil {
		return nil, before
	}
	tasks := c.lent[r.Token]
	if tasks == nil && !r.Again {
		n := min(r.Limit, c.stock)
		c.stock -= n
		tasks = make([]store.Task, n)
		if c.lent == nil {
			c.lent = map[store.Token][]store.Task{}
		}
		c.lent[r.Token] = tasks
	}
	if after != nil {
		return nil, after
	}
	return tasks, nil
}

// worker is what a source needs from the rooms around it.
type worker struct {
	id    store.ID
	room  int
	taken int
	died  []store.ID

	limited []Ask // besides
}

func (w *worker) source(c *counter, queues ...string) *Source {
	return New(c, Options{
		Worker: func() (store.ID, bool) { return w.id, !w.id.IsZero() },
		Dead:   func(id store.ID) { w.died = append(w.died, id); w.id[0]++ },
		Asks:   func() []Ask { return append([]Ask{{Queues: slices.Clone(queues)}}, w.limited...) },
		Room:   func() (int, time.Duration) { return w.room, time.Second },
		Take:   func(tasks []store.Task, _ time.Time) { w.taken += len(tasks); w.room -= len(tasks) },
		Poll:   time.Second, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
}

// run runs a source for a while, in its own time.
func run(t *testing.T, s *Source, meanwhile func()) {
	t.Helper()
	halt, ended := make(chan struct{}), make(chan struct{})
	go func() { s.Loop().Run(context.Background(), halt); close(ended) }()
	meanwhile()
	close(halt)
	<-ended
}

var errLost = errors.New("answer lost")

func TestARepetitionThatGetsNothingIsFollowedByANewClaimAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counter{stock: 3, fail: func(call int) (before, after error) {
			if call == 1 {
				return errLost, nil // it did not arrive
			}
			return nil, nil
		}}
		w := &worker{id: store.ID{1}, room: 10}
		run(t, w.source(c, "p", "q"), func() { time.Sleep(10 * time.Second) })
		if len(c.requests) < 3 || !c.requests[1].Again || c.requests[2].Again || c.requests[2].Token == c.requests[0].Token {
			t.Fatalf("it asked %+v", c.requests)
		}
		if pause := c.at[2].Sub(c.at[1]); w.taken != 3 || pause > 10*time.Millisecond {
			t.Errorf("%d tasks were taken; the new claim came after %v", w.taken, pause)
		}
	})
}

func TestAClaimWithoutAnAnswerIsRepeatedWithItsTokenUntilItHasOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counter{stock: 3, fail: func(call int) (before, after error) {
			switch call {
			case 1:
				return nil, errLost // it took effect
			case 2:
				return errLost, nil // it did not arrive
			}
			return nil, nil
		}}
		w := &worker{id: store.ID{1}, room: 10}
		run(t, w.source(c, "p", "q"), func() { time.Sleep(500 * time.Millisecond) })
		if w.taken != 3 {
			t.Errorf("%d tasks were taken, want the 3 that were leased", w.taken)
		}
		first := c.requests[0]
		for i, r := range c.requests[1:3] {
			if r.Token != first.Token || !r.Again || r.Limit != first.Limit {
				t.Errorf("request %d is %+v, want the first one again", i+2, r)
			}
		}
		if r := c.requests[3]; r.Token == first.Token || r.Again {
			t.Errorf("after the answer it asked %+v, want a new request", r)
		}
	})
}

func TestAClaimOfTheDeadIsNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counter{stock: 3, fail: func(call int) (before, after error) {
			switch call {
			case 1:
				return errLost, nil
			case 2:
				return store.ErrWorkerDead, nil
			}
			return nil, nil
		}}
		w := &worker{id: store.ID{1}, room: 10}
		run(t, w.source(c, "q"), func() { time.Sleep(500 * time.Millisecond) })
		if !slices.Equal(w.died, []store.ID{{1}}) {
			t.Fatalf("told dead: %v, want the first identity once", w.died)
		}
		for _, r := range c.requests[2:] {
			if r.Worker != (store.ID{2}) || r.Again || r.Token == c.requests[0].Token {
				t.Errorf("the next life asked %+v", r)
			}
		}
		if w.taken != 3 {
			t.Errorf("%d tasks were taken, want 3", w.taken)
		}
	})
}

func TestARenewedWorkerDoesNotRepeatTheClaimOfItsFormerSelf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &worker{id: store.ID{1}, room: 10}
		c := &counter{fail: func(call int) (before, after error) {
			if call == 1 {
				w.id = store.ID{9} // the heart noticed meanwhile
				return errLost, nil
			}
			return nil, nil
		}}
		run(t, w.source(c, "q"), func() { time.Sleep(500 * time.Millisecond) })
		if r := c.requests[1]; r.Worker != (store.ID{9}) || r.Again {
			t.Errorf("it asked %+v", r)
		}
	})
}

func TestIdleQueuesAreLookedAtLessAndLessAndNeverStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counter{}
		w := &worker{id: store.ID{1}, room: 10}
		run(t, w.source(c, "q"), func() { time.Sleep(time.Minute) })
		for i := 1; i < len(c.at); i++ {
			if pause := c.at[i].Sub(c.at[i-1]); pause > time.Second {
				t.Errorf("look %d came after %v, want at most Poll", i, pause)
			}
		}
		if n := len(c.at); n < 60 || n > 100 {
			t.Errorf("%d looks in a minute, want about one a second", n)
		}
	})
}

func TestAFullAnswerIsFollowedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counter{stock: 25}
		w := &worker{id: store.ID{1}, room: 10}
		s := w.source(c, "q")
		s.o.Take = func(tasks []store.Task, _ time.Time) { w.taken += len(tasks) } // finished at once
		began := time.Now()
		run(t, s, func() { time.Sleep(time.Millisecond) })
		if w.taken != 25 || len(c.at) < 3 || c.at[2] != began {
			t.Errorf("%d tasks in requests at %v, want 25 without a pause", w.taken, c.at)
		}
	})
}

func TestWithoutRoomNothingIsAskedUntilThereIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counter{stock: 5}
		w := &worker{id: store.ID{1}}
		s := w.source(c, "q")
		run(t, s, func() {
			time.Sleep(10 * time.Second)
			if len(c.requests) > 0 {
				t.Errorf("it asked without room: %+v", c.requests)
			}
			synctest.Wait()
			w.room = 5
			s.Wake()
			synctest.Wait()
			if w.taken != 5 {
				t.Errorf("%d tasks were taken when room came, want 5 at once", w.taken)
			}
		})
	})
}

func TestWithoutRoomItLooksAgainWhenItIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counter{stock: 5}
		w := &worker{id: store.ID{1}}
		s := w.source(c, "q")
		begun := time.Now()
		s.o.Room = func() (int, time.Duration) {
			if left := 5*time.Millisecond - time.Since(begun); left > 0 {
				return 0, left
			}
			return 5, time.Second
		}
		run(t, s, func() { time.Sleep(6 * time.Millisecond) })
		if w.taken != 5 {
			t.Errorf("%d tasks were taken after 6 ms, want 5", w.taken)
		}
	})
}

func TestQueuesTakeTurnsAtBeingFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counter{}
		w := &worker{id: store.ID{1}, room: 10}
		run(t, w.source(c, "a", "b", "c"), func() { time.Sleep(10 * time.Second) })
		first := map[string]int{}
		for _, r := range c.requests {
			if len(r.Queues) != 3 {
				t.Fatalf("asked for %v", r.Queues)
			}
			first[r.Queues[0]]++
		}
		for _, q := range []string{"a", "b", "c"} {
			if n := first[q]; n < len(c.requests)/3 {
				t.Errorf("queue %s was first %d times of %d", q, n, len(c.requests))
			}
		}
	})
}

func TestSettleFetchesWhatALostAnswerHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counter{stock: 2, fail: func(call int) (before, after error) {
			if call <= 3 {
				return nil, errLost
			}
			return nil, nil
		}}
		w := &worker{id: store.ID{1}, room: 10}
		s := w.source(c, "q")
		if _, err := s.claim(t.Context()); !errors.Is(err, errLost) {
			t.Fatal(err)
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.Settle(over); !errors.Is(err, errLost) || w.taken > 0 {
			t.Errorf("when there is no time left: %d tasks, %v", w.taken, err)
		}
		if err := s.Settle(t.Context()); err != nil || w.taken != 2 {
			t.Errorf("settled with %d tasks, %v; want 2", w.taken, err)
		}
		if err := s.Settle(t.Context()); err != nil || len(c.requests) != 4 {
			t.Errorf("a settled source asked again: %v", err)
		}
	})
}

func TestQueuesWithALimitOfTheirOwnAreAskedAloneInTheSameRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counter{}
		w := &worker{id: store.ID{1}, room: 10,
			limited: []Ask{{Queues: []string{"x"}, Most: 2}, {Queues: []string{"y"}, Most: 30}}}
		run(t, w.source(c, "a", "b"), func() { time.Sleep(time.Minute) })
		limits, first := map[string]int{}, map[string]int{}
		for n, r := range c.requests[:len(c.requests)/3*3] {
			if limits[r.Queues[0]] = r.Limit; len(r.Queues) == 2 {
				limits["a"], limits["b"] = r.Limit, r.Limit
			}
			if n%3 == 0 {
				first[r.Queues[0]]++
			} else if c.at[n] != c.at[n-1] {
				t.Fatalf("a pause within a round before %v", r.Queues)
			}
		}
		if limits["a"] != 10 || limits["b"] != 10 || limits["x"] != 2 || limits["y"] != 10 {
			t.Errorf("limits %v", limits)
		}
		if first["x"] == 0 || first["y"] == 0 || first["a"]+first["b"] == 0 {
			t.Errorf("first in a round: %v", first)
		}
	})
}

func manyNames() (names []string) {
	for i := range 100 {
		names = append(names, "queue-"+strconv.Itoa(i))
	}
	return names
}

func TestOfManyQueuesOnlyThoseThatAHintNamesAreAskedBetweenTwoLooksAtAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counter{}
		w := &worker{id: store.ID{1}, room: 10}
		s := w.source(c, manyNames()...)
		run(t, s, func() {
			time.Sleep(100 * time.Millisecond)
			s.Hint("queue-7", "of somebody else")
			time.Sleep(3 * time.Second)
		})
		var all int
		var some [][]string
		for _, r := range c.requests {
			if len(r.Queues) == 100 {
				all++
			} else {
				some = append(some, r.Queues)
			}
		}
		if all < 3 || all > 5 || len(some) != 1 || !slices.Equal(some[0], []string{"queue-7"}) {
			t.Errorf("%d looks at all in 3 s, and at %v", all, some)
		}
	})
}

func TestAHintWithoutNamesIsALookAtAllOfManyQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counter{}
		w := &worker{id: store.ID{1}, room: 10}
		s := w.source(c, manyNames()...)
		run(t, s, func() {
			time.Sleep(100 * time.Millisecond)
			s.Hint()
			time.Sleep(100 * time.Millisecond)
		})
		if len(c.requests) != 2 || len(c.requests[1].Queues) != 100 {
			t.Errorf("%d looks in 200 ms", len(c.requests))
		}
	})
}

func TestWhereAClaimFoundMoreThanItCouldTakeItLooksAgainAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counter{stock: 25}
		w := &worker{id: store.ID{1}}
		s := w.source(c, manyNames()...)
		s.o.Room = func() (int, time.Duration) { return 10, 0 }
		run(t, s, func() { time.Sleep(time.Second) })
		if took := c.at[2].Sub(c.at[0]); took > 100*time.Millisecond {
			t.Errorf("three claims of what was there took %v", took)
		}
	})
}
