package tusk_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

// crowded is a store with many workers that take from its queues and all hear of tasks.
type crowded struct {
	store.Store
	workers       int
	looks, claims atomic.Int64
	broken        atomic.Bool // looks fail
	wake          atomic.Pointer[func(store.Hint)]
}

func (c *crowded) Look(ctx context.Context, queues []string, kinds ...string) (seen store.Sight, err error) {
	c.looks.Add(1)
	if c.broken.Load() {
		time.Sleep(time.Millisecond)
		return seen, store.ErrUnavailable
	}
	for _, kind := range kinds {
		records, err := c.Records(ctx, store.RecordFilter{Kind: kind})
		if err != nil {
			return seen, err
		}
		seen.Records = append(seen.Records, records...)
	}
	tasks, err := c.List(ctx, store.Filter{States: []store.State{store.Available}, Queues: queues, Limit: 10})
	for i := range tasks {
		if !slices.Contains(seen.Queues, tasks[i].Queue) && len(queues) > 0 {
			seen.Queues = append(seen.Queues, tasks[i].Queue)
		}
	}
	seen.Workers = c.workers
	return seen, err
}

func (c *crowded) Claim(ctx context.Context, r store.ClaimRequest) ([]store.Task, error) {
	c.claims.Add(1)
	return c.Store.Claim(ctx, r)
}

func (c *crowded) Listen(ctx context.Context, wake func(store.Hint)) error {
	c.wake.Store(&wake)
	<-ctx.Done()
	return ctx.Err()
}

func (c *crowded) tell(queue string) { (*c.wake.Load())(store.Hint{Queues: []string{queue}}) }

func (c *crowded) Prompt() bool { return true }

func TestWorkersOfACrowdShareTheLooks(t *testing.T) {
	idle := func(name string, workers int, f func(t *testing.T, s *shop, c *crowded)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &crowded{Store: memory.New(), workers: workers}
				s := &shop{t: t, store: c, mux: tusk.NewMux(), client: clientOf(t, c)}
				tusk.HandleFunc(s.mux, func(context.Context, count) error { return nil })
				_, stop := s.work(&tusk.WorkerConfig{NeverLead: true})
				time.Sleep(30 * time.Second)
				f(t, s, c)
				if err := stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
	for workers, want := range map[int]int64{0: 60, 1: 60, 4: 15, 10: 6, 1000: 6} {
		idle("of a minute's looks", workers, func(t *testing.T, _ *shop, c *crowded) {
			looks, claims := c.looks.Load(), c.claims.Load()
			time.Sleep(time.Minute)
			if n := c.looks.Load() - looks; n < want-1 || n > want+1 || c.claims.Load()-claims > 1 {
				t.Errorf("one of %d workers looks %d times a minute, want about %d, and claims %d times", workers, n, want,
					c.claims.Load()-claims)
			}
		})
	}
	idle("who hears of a task takes it at once", 10, func(t *testing.T, s *shop, c *crowded) {
		for range 20 {
			time.Sleep(3700 * time.Millisecond)
			id := s.enqueue(count{}, nil)
			c.tell("default")
			time.Sleep(50 * time.Millisecond)
			if state := s.get(id).State; state != tusk.StateCompleted {
				t.Errorf("50 ms later the task is %v", state)
			}
		}
	})
	idle("who hears of a task while the store fails looks no more often than others, and takes it afterwards", 10,
		func(t *testing.T, s *shop, c *crowded) {
			time.Sleep(3700 * time.Millisecond)
			looks := c.looks.Load()
			c.broken.Store(true)
			c.tell("default")
			time.Sleep(time.Minute)
			if n := c.looks.Load() - looks; n > 40 {
				t.Errorf("%d looks failed in a minute", n)
			}
			id := s.enqueue(count{}, nil)
			c.broken.Store(false)
			time.Sleep(6 * time.Second)
			if state := s.get(id).State; state != tusk.StateCompleted {
				t.Errorf("when the store answers again the task is %v", state)
			}
		})
	idle("who hears of many tasks while looks fail looks no more often than that, and takes them at once", 10,
		func(t *testing.T, s *shop, c *crowded) { // as while the home of many ledgers is away
			time.Sleep(3700 * time.Millisecond)
			looks := c.looks.Load()
			c.broken.Store(true)
			for range 20 {
				id := s.enqueue(count{}, nil)
				for range 10 {
					c.tell("default")
					time.Sleep(10 * time.Millisecond)
				}
				if state := s.get(id).State; state != tusk.StateCompleted {
					t.Errorf("100 ms later the task is %v", state)
				}
			}
			if n := c.looks.Load() - looks; n > 10 {
				t.Errorf("%d looks failed in two seconds", n)
			}
		})
	idle("who hears of tasks of other queues asks for nothing", 10, func(t *testing.T, _ *shop, c *crowded) {
		looks, claims := c.looks.Load(), c.claims.Load()
		for range 600 {
			c.tell("other")
			time.Sleep(100 * time.Millisecond)
		}
		if n, m := c.looks.Load()-looks, c.claims.Load()-claims; n > 7 || m > 1 {
			t.Errorf("in a minute it looks %d times, want about 6, and claims %d times", n, m)
		}
	})
	idle("who does not hear of it finds it", 10, func(t *testing.T, s *shop, _ *crowded) {
		id := s.enqueue(count{}, nil)
		time.Sleep(11 * time.Second)
		if state := s.get(id).State; state != tusk.StateCompleted {
			t.Errorf("11 s later the task is %v", state)
		}
	})
	idle("who hears of a task of a queue that was paused since leaves it", 10, func(t *testing.T, s *shop, c *crowded) {
		if err := s.client.PauseQueue(t.Context(), "default"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		id := s.enqueue(count{}, nil)
		c.tell("default")
		time.Sleep(time.Minute)
		if state := s.get(id).State; state != tusk.StateAvailable {
			t.Errorf("the task is %v", state)
		}
		if err := s.client.ResumeQueue(t.Context(), "default"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if state := s.get(id).State; state != tusk.StateCompleted {
			t.Errorf("2 s after the pause the task is %v", state)
		}
	})
}
