package feed

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

// counting counts how often the queues and the groups of errors are queried.
type counting struct {
	store.Store
	counts atomic.Int64
	groups atomic.Int64
}

func (c *counting) Errors(ctx context.Context, f store.ErrorFilter) ([]store.ErrorGroup, error) {
	c.groups.Add(1)
	time.Sleep(50 * time.Millisecond)
	return c.Store.Errors(ctx, f)
}

func (c *counting) Count(ctx context.Context) ([]store.Count, error) {
	c.counts.Add(1)
	return c.Store.Count(ctx)
}

func newFeed(t *testing.T) (*Feed, *counting) {
	t.Helper()
	s := &counting{Store: memory.New()}
	client, err := tusk.NewClient(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	f := New(client, slog.New(slog.DiscardHandler))
	f.every = 20 * time.Millisecond
	return f, s
}

func TestManyWatchersCostOneQueryPerTick(t *testing.T) {
	defer goleak.VerifyNone(t)
	f, s := newFeed(t)
	defer f.Close()
	var all sync.WaitGroup
	var most atomic.Int64
	for i := range 200 {
		all.Go(func() {
			snapshots, leave := f.Watch(fmt.Sprint(i / OwnWatchers))
			defer leave()
			for n := range int64(10) {
				if <-snapshots == nil {
					t.Error("closed")
					return
				}
				most.Store(max(most.Load(), n+1))
			}
		})
	}
	all.Wait()
	// No watcher saw more than ten ticks, so there cannot have been many more queries.
	if n := s.counts.Load(); n > 50 {
		t.Errorf("%d queries for 200 watchers of 10 ticks", n)
	}
}

func TestNobodyWatchesNobodyAsks(t *testing.T) {
	defer goleak.VerifyNone(t)
	f, s := newFeed(t)
	snapshots, leave := f.Watch("ada")
	<-snapshots
	leave()
	leave() // twice is harmless
	f.Close()
	before := s.counts.Load()
	time.Sleep(100 * time.Millisecond)
	if n := s.counts.Load(); n != before {
		t.Errorf("asked %d times while nobody watched", n-before)
	}
	if snapshots, _ := f.Watch("ada"); snapshots != nil {
		t.Error("a closed feed is watched")
	}
}

func TestThereIsAnEndToWatchers(t *testing.T) {
	defer goleak.VerifyNone(t)
	f, _ := newFeed(t)
	defer f.Close()
	for i := range MaxWatchers {
		if snapshots, _ := f.Watch(fmt.Sprint(i / OwnWatchers)); snapshots == nil {
			t.Fatal("too few may watch")
		}
		if i != OwnWatchers {
			continue
		}
		if snapshots, _ := f.Watch("0"); snapshots != nil {
			t.Fatal("one may watch for all")
		}
	}
	if snapshots, _ := f.Watch("ada"); snapshots != nil {
		t.Error("too many may watch")
	}
}

func TestNamesAreAskedForOnceInAWhile(t *testing.T) {
	f, s := newFeed(t)
	defer f.Close()
	if _, err := f.client.EnqueueMany(t.Context(),
		[]tusk.NewTask{{Args: tusk.RawArgs{Name: "k", JSON: []byte("1")},
			Options: &tusk.Options{Queue: "mail"}}}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if names, err := f.Names(t.Context()); err != nil || len(names) != 1 || names[0] != "mail" {
			t.Errorf("%v, %v", names, err)
		}
	}
	if n := s.counts.Load(); n != 1 {
		t.Errorf("asked %d times", n)
	}
}

func TestManyWatchersCountTheDiscardedTasksOnce(t *testing.T) {
	f, s := newFeed(t)
	defer f.Close()
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if d, err := f.Discarded(t.Context()); err != nil || d.At.IsZero() {
				t.Error(d, err)
			}
		})
	}
	all.Wait()
	if n := s.groups.Load(); n != 1 {
		t.Errorf("50 watchers counted the discarded tasks %d times", n)
	}
}
