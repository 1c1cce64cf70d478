package tend

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tuskqueue/tusk/internal/allot"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

// rateless is a store that cannot store the usage of one queue's rates.
type rateless struct {
	store.Store
	healed atomic.Bool
}

func (r *rateless) PutRecord(ctx context.Context, p store.PutRecord) (int64, []store.Enqueued, error) {
	if p.Record.Kind == allot.StateKind && strings.HasPrefix(p.Record.Name, "bad") && !r.healed.Load() {
		return 0, nil, errPlanned
	}
	return r.Store.PutRecord(ctx, p)
}

// One queue's error ended the round for all queues that came after it.
func TestAQueueWhoseTurnsCannotBeHandedOutHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &rateless{Store: memory.New()}
		queues := []string{"bad", "good", "better", "best"}
		for _, queue := range queues {
			put(t, s, allot.RecordKind, queue, allot.Limits{Rate: &allot.Rate{Allowed: 100, Period: time.Second}})
		}
		put(t, s.Store, allot.StateKind, "best", "no usage")
		var told bytes.Buffer
		_, kill := lead(s, 1, func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&told, nil)) })
		waiting := func() (of string) {
			for _, queue := range queues {
				list, err := s.List(t.Context(), store.Filter{Queues: []string{queue}, States: []store.State{store.Pending}})
				if err != nil {
					t.Fatal(err)
				}
				if len(list) > 0 {
					of += queue + " "
				}
			}
			return of
		}
		for range 5 {
			var tasks []store.NewTask
			for _, queue := range queues {
				tasks = append(tasks, store.NewTask{ID: newID(), Queue: queue, Kind: "k", Args: []byte("{}"), Turn: true})
			}
			if _, err := s.Enqueue(t.Context(), tasks); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			if got := waiting(); got != "bad " {
				t.Errorf("tasks wait for a turn in the queues %s", got)
			}
		}
		s.healed.Store(true)
		time.Sleep(3 * time.Second)
		if got := waiting(); got != "" {
			t.Errorf("once that has passed, tasks wait in the queues %s", got)
		}
		kill()
		if n := strings.Count(told.String(), "queue=bad"); n != 1 {
			t.Errorf("it was logged %d times:\n%s", n, told.String())
		}
	})
}

// Nobody reads the usage of a queue that has no rates any more. The next leader deletes it once it cannot matter.
func TestTheUsageOfAQueueWithoutRatesIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		put(t, s, allot.RecordKind, "q", allot.Limits{Concurrency: 1})
		put(t, s, allot.RecordKind, "rated", allot.Limits{Rate: &allot.Rate{Allowed: 100, Period: time.Second}})
		for _, name := range []string{"q", "q/1", "gone", "rated"} {
			put(t, s, allot.StateKind, name, allot.Rates{})
		}
		left := func() (names string) {
			_, kill := lead(s, 1)
			time.Sleep(3 * time.Second)
			kill()
			records, err := s.Records(t.Context(), store.RecordFilter{Kind: allot.StateKind})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range records {
				names += r.Name + " "
			}
			return names
		}
		if got := left(); got != "gone q q/1 rated " {
			t.Errorf("usage that may still matter: %s", got)
		}
		time.Sleep(allot.Remembered + time.Minute)
		if got := left(); got != "rated " {
			t.Errorf("two days later there is %s", got)
		}
	})
}

// timed is a store whose looks at turns may take time. It counts them.
type timed struct {
	store.Store
	looks atomic.Int64
	slow  atomic.Bool // the next look takes 6 ms
}

func (s *timed) Turns(ctx context.Context, term int64, groups, heads int) ([]store.Turns, error) {
	s.looks.Add(1)
	if s.slow.Swap(false) {
		time.Sleep(6 * time.Millisecond)
	}
	return s.Store.Turns(ctx, term, groups, heads)
}

// during returns how often the leader looked while time went by.
func (s *timed) during(d time.Duration) int64 {
	before := s.looks.Load()
	time.Sleep(d)
	synctest.Wait()
	return s.looks.Load() - before
}

// A tenant runs one task at a time. When the first task has its turn, the leader looks often for a while, because a
// short task gives it back soon.
func TestAfterAGrantTheNextLookComesSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &timed{Store: memory.New()}
		put(t, s, allot.RecordKind, "q", allot.Limits{PerTenant: 1})
		_, kill := lead(s, 1)
		defer kill()
		time.Sleep(2 * time.Second)
		var tasks []store.NewTask
		for range 2 {
			tasks = append(tasks, store.NewTask{ID: newID(), Queue: "q", Kind: "k", Args: []byte("{}"), Tenant: "a", Turn: true})
		}
		if _, err := s.Enqueue(t.Context(), tasks); err != nil {
			t.Fatal(err)
		}
		granted := func() bool {
			list, err := s.List(t.Context(), store.Filter{Queues: []string{"q"}, States: []store.State{store.Available}})
			return err == nil && len(list) == 1
		}
		for !granted() {
			time.Sleep(time.Millisecond)
		}
		if n := s.during(80 * time.Millisecond); n < 8 {
			t.Errorf("%d looks in the 80 ms after a grant, want 8", n)
		}
		s.during(time.Second)
		if n := s.during(time.Second); n < 40 || n > 51 {
			t.Errorf("%d looks a second while the turn is held, want about 50", n)
		}
		for range 5 { // the pause after a look of 6 ms was 96 ms
			s.slow.Store(true)
			if n := s.during(80 * time.Millisecond); n < 3 {
				t.Errorf("%d looks in 80 ms, one of which was slow: want at least 3", n)
			}
		}
	})
}
