package tend

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

// A process that sees another one lead does not campaign. It campaigns at once when it sees that nobody leads any more,
// and by itself when it sees nothing any more.
func TestWhoSeesAnotherLeadDoesNotCampaign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		s := &shaky{Store: memory.New(), before: func(method string) error {
			if method == "Lead" {
				asked.Add(1)
			}
			return nil
		}}
		other := store.ID{9}
		if _, err := s.Store.Lead(t.Context(), store.Candidate{ID: other, TTL: time.Hour}); err != nil {
			t.Fatal(err)
		}
		l, kill := lead(s, 1)
		defer kill()
		synctest.Wait()
		asked.Store(0)
		for range 60 {
			l.Saw(other, time.Now(), time.Now(), time.Second)
			time.Sleep(time.Second)
		}
		for range 10 {
			l.Saw(other, time.Now(), time.Now(), 2*ttl)
			time.Sleep(2 * ttl)
		}
		if n := asked.Load(); n != 0 {
			t.Errorf("it campaigned %d times while another was seen to lead", n)
		}
		time.Sleep(2 * ttl)
		if asked.Load() == 0 {
			t.Error("it does not campaign although nothing is seen any more")
		}
		l.Saw(other, time.Now(), time.Now(), time.Second)
		if _, err := s.Store.Lead(t.Context(), store.Candidate{ID: other}); err != nil {
			t.Fatal(err)
		}
		l.Saw(store.ID{}, time.Now(), time.Now(), time.Second)
		synctest.Wait()
		if l.Term() == 0 {
			t.Error("it does not lead although nobody was seen to")
		}
	})
}

// Each of ten idle workers with the default lease looks every ten seconds, which is a third of the lease. Each took the
// pause for an outage, and would have declared nobody dead for half a minute after becoming the leader.
func TestAPauseBetweenTwoLooksIsNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := candidate(memory.New(), 1)
		look := func(pause time.Duration) {
			l.Saw(store.ID{9}, time.Now(), time.Now(), pause)
			time.Sleep(pause + 5*time.Millisecond)
		}
		for range 5 {
			look(l.o.Outage)
		}
		if !l.back.IsZero() {
			t.Error("a pause counts as an outage")
		}
		look(l.o.Outage)
		time.Sleep(l.o.Outage)
		look(l.o.Outage)
		if l.back.IsZero() {
			t.Error("an outage counts for none")
		}
	})
}
