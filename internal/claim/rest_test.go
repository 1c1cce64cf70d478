package claim

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// looks tells a source once a second, for a while, that nothing was found.
func looks(s *Source, n int) (asked []string) {
	for range n {
		asked = s.Rests()
		s.Looked(time.Now(), nil, time.Second)
		time.Sleep(time.Second)
		synctest.Wait()
	}
	return asked
}

func TestWhileLooksFindNothingAnIdleSourceDoesNotPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counter{}
		w := &worker{id: store.ID{1}, room: 10}
		s := w.source(c, "p", "q")
		run(t, s, func() {
			synctest.Wait()
			if s.Rests() != nil {
				t.Error("it rests after the first look")
			}
			time.Sleep(10 * time.Second)
			synctest.Wait()
			before := c.asked()
			if asked := looks(s, 60); !slices.Equal(asked, []string{"p", "q"}) {
				t.Errorf("it rests on %q, want both queues", asked)
			}
			synctest.Wait()
			if n := c.asked() - before; n > 1 {
				t.Errorf("%d polls beside looks that found nothing", n)
			}
			before = c.asked()
			time.Sleep(time.Minute)
			synctest.Wait()
			if n := c.asked() - before; n < 55 {
				t.Errorf("%d polls in a minute without looks, want about one a second", n)
			}
		})
	})
}

func TestAnIdleSourceThatHearsOfSomethingPollsAtOnceWhateverALookFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counter{}
		w := &worker{id: store.ID{1}, room: 10}
		s := w.source(c, "p", "q")
		run(t, s, func() {
			time.Sleep(10 * time.Second)
			looks(s, 10)
			for what, tell := range map[string]func(){
				"a hint":                    func() { s.Hint("q") },
				"a hint without a name":     func() { s.Hint() },
				"room":                      s.Freed,
				"somebody who woke it":      s.Wake,
				"a look that found a queue": func() { s.Looked(time.Now(), []string{"p"}, time.Second) },
			} {
				s.Looked(time.Now(), nil, time.Second)
				before := c.asked()
				tell()
				s.Looked(time.Now(), nil, time.Second)
				synctest.Wait()
				if n := c.asked() - before; n != 1 {
					t.Errorf("%d polls after %s, want one", n, what)
				}
			}
			c.stock = 1
			s.Hint("q")
			synctest.Wait()
			if s.Rests() != nil {
				t.Error("it rests although it has just found something")
			}
		})
	})
}

func TestASourceRestsUntilTheNextLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counter{}
		w := &worker{id: store.ID{1}, room: 10}
		s := w.source(c, "p")
		run(t, s, func() {
			time.Sleep(10 * time.Second)
			looks(s, 10)
			before := c.asked()
			for range 4 {
				s.Looked(time.Now(), nil, 5*time.Second)
				time.Sleep(5 * time.Second)
				synctest.Wait()
			}
			if n := c.asked() - before; n > 1 {
				t.Errorf("%d polls beside looks every five seconds", n)
			}
			before = c.asked()
			s.Looked(time.Now(), nil, time.Second)
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if c.asked() == before {
				t.Error("no poll after a look that did not come")
			}
		})
	})
}

func TestTasksThatComeWithinTheTimeBetweenTwoClaimsShareOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counter{stock: 1}
		w := &worker{id: store.ID{1}, room: 10}
		s := w.source(c, "q")
		s.o.Every = 20 * time.Millisecond
		s.o.Prompt = func() bool { return true }
		begin := time.Now()
		run(t, s, func() {
			synctest.Wait()
			for range 3 {
				time.Sleep(6 * time.Millisecond)
				c.mu.Lock()
				c.stock++
				c.mu.Unlock()
				s.Hint("q")
				synctest.Wait()
			}
			if n := c.asked(); n != 1 {
				t.Errorf("%d claims within 18 ms, want the first one alone", n)
			}
			time.Sleep(2 * time.Millisecond)
			synctest.Wait()
			if at := c.at[len(c.at)-1].Sub(begin); c.asked() != 2 || at != 20*time.Millisecond || w.taken != 4 {
				t.Errorf("%d claims, the last after %v, took %d tasks: want two, after 20ms, and four", c.asked(), at, w.taken)
			}
		})
	})
}

func TestABacklogIsClaimedWithoutPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counter{stock: 25}
		w := &worker{id: store.ID{1}, room: 10}
		s := w.source(c, "q")
		s.o.Every = time.Second
		run(t, s, func() {
			for range 2 {
				synctest.Wait()
				w.room = 10
				s.Freed()
			}
			synctest.Wait()
			if w.taken != 25 {
				t.Errorf("%d tasks were taken at once, want all 25", w.taken)
			}
		})
	})
}
