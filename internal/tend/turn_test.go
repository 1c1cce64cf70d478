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
