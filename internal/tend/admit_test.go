package tend

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

// countsAdmits returns a store, and how often its Admit is called.
func countsAdmits() (*shaky, *atomic.Int64) {
	asked := new(atomic.Int64)
	return &shaky{Store: memory.New(), before: func(method string) error {
		if method == "Admit" {
			asked.Add(1)
		}
		return nil
	}}, asked
}

func TestWhereNothingBecomesDueTheLeaderLooksForItLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, asked := countsAdmits()
		_, kill := lead(s, 1)
		defer kill()
		looks := func(within time.Duration) int64 {
			asked.Store(0)
			time.Sleep(within)
			synctest.Wait()
			return asked.Load()
		}
		time.Sleep(time.Minute)
		if n := looks(10 * time.Second); n < 15 || n > 25 {
			t.Errorf("%d looks in ten seconds while nothing waits, want about twenty", n)
		}
		later := store.NewTask{ID: newID(), Kind: "k", Queue: "q", Args: []byte("{}"), Delay: 2 * time.Second}
		if _, err := s.Store.Enqueue(t.Context(), []store.NewTask{later}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(later.Delay + time.Millisecond)
		synctest.Wait()
		waiting, err := s.Store.List(t.Context(), store.Filter{States: []store.State{store.Available}, Limit: 1})
		if err != nil || len(waiting) != 1 {
			t.Errorf("%d tasks are available as soon as one is due, %v", len(waiting), err)
		}
		if n := looks(9 * time.Second); n < 40 {
			t.Errorf("%d looks in nine seconds after something was due, want about 45", n)
		}
	})
}

func TestTasksThatAreDueCloseTogetherAreAdmittedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, asked := countsAdmits()
		_, kill := lead(s, 1)
		defer kill()
		time.Sleep(time.Minute)
		for i := range 100 {
			task := store.NewTask{ID: newID(), Kind: "k", Queue: "q", Args: []byte("{}"),
				Delay: 2*time.Second + time.Duration(i)*5*time.Millisecond}
			if _, err := s.Store.Enqueue(t.Context(), []store.NewTask{task}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2*time.Second + time.Millisecond)
		synctest.Wait()
		available := func() int {
			list, err := s.Store.List(t.Context(), store.Filter{States: []store.State{store.Available}, Limit: 1000})
			if err != nil {
				t.Fatal(err)
			}
			return len(list)
		}
		if n := available(); n != 1 {
			t.Errorf("%d tasks are available as soon as one is due", n)
		}
		asked.Store(0)
		for i := range 20 {
			time.Sleep(25 * time.Millisecond)
			synctest.Wait()
			if due := min(5*(i+1), 99); available() < due-3 {
				t.Fatalf("%d tasks are available, %d are due", available(), due)
			}
		}
		if n := asked.Load(); n > 27 {
			t.Errorf("%d looks in half a second, want one in 20 ms", n)
		}
	})
}
