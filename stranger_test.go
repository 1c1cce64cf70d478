package tusk_test

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

// counted is a store that counts claimed tasks.
type counted struct {
	store.Store
	claimed atomic.Int64
}

func (c *counted) Claim(ctx context.Context, r store.ClaimRequest) ([]store.Task, error) {
	tasks, err := c.Store.Claim(ctx, r)
	c.claimed.Add(int64(len(tasks)))
	return tasks, err
}

// counted replaces the shop's store by a counted one.
func (s *shop) counted() *counted {
	c := &counted{Store: s.store}
	s.store, s.client = c, clientOf(s.t, c)
	return c
}

// strange enqueues tasks that no worker of a plain shop has a handler for.
func (s *shop) strange(n int, kind string, o *tusk.Options) (ids []tusk.ID) {
	s.t.Helper()
	for range n {
		ids = append(ids, s.enqueue(tusk.RawArgs{Name: kind}, o))
	}
	return ids
}

// hires starts a worker with handlers for some kinds only. It returns the order in which the worker ran their tasks.
func (s *shop) hires(
	config *tusk.WorkerConfig, kinds ...string,
) (w *tusk.Worker, stop func() error, ran func() []tusk.ID) {
	var mu sync.Mutex
	var order []tusk.ID
	plain := s.mux
	s.mux = tusk.NewMux()
	for _, kind := range kinds {
		tusk.HandleKind(s.mux, kind, func(_ context.Context, task *tusk.Task[json.RawMessage]) error {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, task.ID)
			return nil
		})
	}
	w, stop = s.work(config)
	s.mux = plain
	return w, stop, func() []tusk.ID {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(order)
	}
}

// open starts a worker that has no handler for strangers.
func (s *shop) open(config *tusk.WorkerConfig) (w *tusk.Worker, stop func() error) {
	w, stop, _ = s.hires(config, "count")
	return w, stop
}

// settles is long enough for tasks that no worker has a handler for to be postponed.
const settles = 15 * time.Second

func TestStrangers(t *testing.T) {
	inBubble(t, "two workers that each have a kind share a queue", func(t *testing.T, s *shop) {
		c := s.counted()
		s.strange(50, "ka", &tusk.Options{Queue: "k"})
		s.strange(50, "kb", &tusk.Options{Queue: "k"})
		config := func() *tusk.WorkerConfig {
			return &tusk.WorkerConfig{Queues: []string{"k"}, Concurrency: 10, ReadAhead: -1}
		}
		_, stopA, ranA := s.hires(config(), "ka")
		_, stopB, ranB := s.hires(config(), "kb")
		time.Sleep(15 * time.Second)
		if a, b := len(ranA()), len(ranB()); a != 50 || b != 50 {
			t.Errorf("%d and %d of 50 tasks ran", a, b)
		}
		if n := c.claimed.Load(); n > 1000 {
			t.Errorf("100 tasks were claimed %d times", n)
		}
		for _, stop := range []func() error{stopA, stopB} {
			if err := stop(); err != nil {
				t.Error(err)
			}
		}
	})
	inBubble(t, "a worker goes on with its own kind while the other is busy", func(t *testing.T, s *shop) {
		config := func() *tusk.WorkerConfig {
			return &tusk.WorkerConfig{Queues: []string{"k"}, Concurrency: 1, ReadAhead: -1}
		}
		plain := s.mux
		s.mux = tusk.NewMux()
		tusk.HandleKind(s.mux, "kb", func(ctx context.Context, _ *tusk.Task[json.RawMessage]) error {
			select {
			case <-ctx.Done():
			case <-time.After(time.Minute):
			}
			return ctx.Err()
		})
		_, stopB := s.work(config())
		s.mux = plain
		_, stopA, ran := s.hires(config(), "ka")
		s.strange(100, "kb", &tusk.Options{Queue: "k"})
		time.Sleep(20 * time.Second)
		s.strange(1, "ka", &tusk.Options{Queue: "k"})
		time.Sleep(10 * time.Second)
		if len(ran()) != 1 {
			t.Error("a task of its own has waited for ten seconds")
		}
		s.stop(stopA)
		s.stop(stopB)
	})
	inBubble(t, "tasks that nobody can run are put off and cost nothing", func(t *testing.T, s *shop) {
		c := s.counted()
		_, stop := s.open(nil)
		ids := s.strange(500, "stranger", &tusk.Options{MaxAttempts: 1})
		time.Sleep(settles)
		before := c.claimed.Load()
		ids = append(ids, s.strange(1, "stranger", nil)...) // by now it is known that no worker handles the kind
		time.Sleep(50 * time.Minute)
		if n := c.claimed.Load() - before; before > 1000 || n != 1 {
			t.Errorf("%d claimed at first, %d in the 50 minutes after that", before, n)
		}
		for _, id := range ids {
			if task := s.get(id); task.State != tusk.StateRetryable || task.Attempt != 0 {
				t.Fatalf("%+v", task)
			}
		}
		s.stop(stop)
	})
	inBubble(t, "and come back ever more rarely", func(t *testing.T, s *shop) {
		c := s.counted()
		_, stop := s.open(nil)
		s.strange(1, "stranger", nil)
		time.Sleep(6 * time.Hour)
		if n := c.claimed.Load(); n != 5 { // at once, after 5 s, and after 1, 2 and 4 hours
			t.Errorf("%d claims in six hours", n)
		}
		s.stop(stop)
	})
	inBubble(t, "a worker that can run them does so within seconds", func(t *testing.T, s *shop) {
		_, stop := s.open(nil)
		s.strange(2500, "stranger", nil)
		time.Sleep(20 * time.Minute)
		_, stopOther, ran := s.hires(nil, "stranger")
		time.Sleep(10 * time.Second)
		if n := len(ran()); n != 2500 {
			t.Errorf("%d ran", n)
		}
		s.stop(stop)
		s.stop(stopOther)
	})
	inBubble(t, "so does one that comes after everybody has gone, the oldest first", func(t *testing.T, s *shop) {
		_, stop := s.open(nil)
		ids := s.strange(2500, "stranger", nil)
		time.Sleep(settles)
		s.stop(stop)
		time.Sleep(10 * time.Minute)
		_, stopOther, ran := s.hires(&tusk.WorkerConfig{Concurrency: 1}, "stranger")
		time.Sleep(15 * time.Second)
		if order := ran(); !slices.Equal(order, ids) {
			t.Errorf("%d ran", len(order))
		}
		s.stop(stopOther)
	})
	inBubble(t, "one that is started anew is not missed", func(t *testing.T, s *shop) {
		_, stop := s.open(nil)
		_, stopOther, _ := s.hires(nil, "stranger")
		time.Sleep(time.Minute)
		s.stop(stopOther)
		ids := s.strange(10, "stranger", nil)
		time.Sleep(3 * time.Second)
		_, stopOther, ran := s.hires(nil, "stranger")
		time.Sleep(10 * time.Second)
		if n := len(ran()); n != 10 || len(s.get(ids[0]).Detail.Attempts) > 1 {
			t.Errorf("%d ran, %+v", n, s.get(ids[0]).Detail.Attempts)
		}
		s.stop(stop)
		s.stop(stopOther)
	})
	inBubble(t, "one that comes and goes leaves nothing behind", func(t *testing.T, s *shop) {
		_, stop := s.open(nil)
		for range 5 {
			s.strange(20, "stranger", nil)
			time.Sleep(time.Minute)
			_, stopOther, ran := s.hires(nil, "stranger")
			time.Sleep(10 * time.Second)
			if n := len(ran()); n != 20 {
				t.Errorf("%d ran", n)
			}
			s.stop(stopOther)
		}
		s.stop(stop)
	})
	inBubble(t, "a quiet one that is woken runs them", func(t *testing.T, s *shop) {
		_, stop := s.open(nil)
		w, stopOther, ran := s.hires(nil, "stranger")
		time.Sleep(time.Second)
		if err := s.client.QuietWorker(t.Context(), w.ID()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		s.strange(10, "stranger", nil)
		time.Sleep(time.Minute)
		if n := len(ran()); n != 0 {
			t.Errorf("%d ran while it was quiet", n)
		}
		if err := s.client.WakeWorker(t.Context(), w.ID()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if n := len(ran()); n != 10 {
			t.Errorf("%d ran", n)
		}
		s.stop(stop)
		s.stop(stopOther)
	})
	inBubble(t, "what is scheduled or rescheduled is left alone", func(t *testing.T, s *shop) {
		_, stop := s.open(nil)
		later := s.strange(1, "stranger", &tusk.Options{Delay: 2 * time.Hour})[0]
		moved := s.strange(3, "stranger", nil)
		time.Sleep(settles)
		for i, in := range []time.Duration{40 * time.Minute, 100 * time.Hour} {
			later := tusk.Change{Op: tusk.OpReschedule, Delay: in}
			if _, err := s.client.Edit(t.Context(), []tusk.ID{moved[i]}, later); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.client.Edit(t.Context(), moved[1:], tusk.Change{Op: tusk.OpReprioritize, Priority: 7}); err != nil {
			t.Fatal(err)
		}
		retried := s.strange(1, "stranger", nil)
		time.Sleep(settles)
		retry := tusk.Change{Op: tusk.OpRetry, Delay: 40 * time.Minute}
		if _, err := s.client.Edit(t.Context(), retried, retry); err != nil {
			t.Fatal(err)
		}
		_, stopOther, ran := s.hires(nil, "stranger")
		time.Sleep(30 * time.Minute)
		if order := ran(); !slices.Equal(order, moved[2:]) || s.get(later).State != tusk.StateScheduled {
			t.Errorf("%v ran", order)
		}
		s.await(moved[0], tusk.StateCompleted)
		s.await(later, tusk.StateCompleted)
		if order := ran(); len(order) != 4 {
			t.Errorf("%v ran", order)
		}
		s.stop(stop)
		s.stop(stopOther)
	})
	inBubble(t, "they end at their deadline and at their expiry", func(t *testing.T, s *shop) {
		_, stop := s.open(nil)
		expires := s.strange(1, "stranger", &tusk.Options{ExpiresIn: 10 * time.Minute})[0]
		deadline := s.strange(1, "stranger", &tusk.Options{DeadlineIn: 10 * time.Minute})[0]
		time.Sleep(11 * time.Minute)
		for _, id := range []tusk.ID{expires, deadline} {
			if task := s.get(id); task.State != tusk.StateDiscarded {
				t.Errorf("%v, due at %v", task.State, task.RunAt)
			}
		}
		s.stop(stop)
	})
	inBubble(t, "in a queue with limits they take no place, and wait for their turn again", func(t *testing.T, s *shop) {
		if err := s.client.SetLimits(t.Context(), tusk.DefaultQueue, tusk.Limits{PerPartition: 1}); err != nil {
			t.Fatal(err)
		}
		_, stop := s.open(nil)
		of := &tusk.Options{Partition: "doc"}
		s.strange(3, "stranger", of)
		mine := s.enqueue(count{}, of)
		time.Sleep(time.Minute)
		if task := s.get(mine); task.State != tusk.StateCompleted {
			t.Errorf("the task behind them is %v", task.State)
		}
		_, stopOther, ran := s.hires(nil, "stranger")
		time.Sleep(15 * time.Second)
		if n := len(ran()); n != 3 {
			t.Errorf("%d ran", n)
		}
		s.stop(stop)
		s.stop(stopOther)
	})
	inBubble(t, "a puller that asks for tasks of their queue gets them", func(t *testing.T, s *shop) {
		_, stop := s.open(nil)
		s.strange(1, "stranger", nil)
		time.Sleep(settles)
		p := s.client.NewPuller()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		var lent []tusk.Lent
		for began := time.Now(); len(lent) == 0 && time.Since(began) < time.Minute; {
			var err error
			lent, err = p.Claim(t.Context(), tusk.Pull{Queues: []string{tusk.DefaultQueue}, Wait: 10 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
		}
		if len(lent) != 1 {
			t.Error("it was lent nothing")
		}
		cancel()
		<-done
		s.stop(stop)
	})
}

// In a queue whose failed tasks block those behind them.
func TestStrangersThatBlock(t *testing.T) {
	partition := &tusk.Options{Queue: "q", Partition: "p"}
	begin := func(s *shop) (ids []tusk.ID) {
		if err := s.client.SetLimits(s.t.Context(), "q", tusk.Limits{PerPartition: 1, BlockOnRetry: true}); err != nil {
			s.t.Fatal(err)
		}
		return append(s.strange(1, "ka", partition), s.strange(1, "kb", partition)...)
	}
	config := func() *tusk.WorkerConfig { return &tusk.WorkerConfig{Queues: []string{"q"}, ReadAhead: -1} }
	inBubble(t, "a task that nobody can run blocks no others", func(t *testing.T, s *shop) {
		ids := begin(s)
		_, stopB, _ := s.hires(config(), "kb")
		time.Sleep(2 * settles)
		if a, b := s.get(ids[0]), s.get(ids[1]); a.State != tusk.StateRetryable || b.State != tusk.StateCompleted {
			t.Errorf("the task that nobody can run is %v, and the one behind it %v", a.State, b.State)
		}
		_, stopA, _ := s.hires(config(), "ka")
		s.await(ids[0], tusk.StateCompleted)
		s.stop(stopA)
		s.stop(stopB)
	})
}
