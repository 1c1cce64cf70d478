package tusk_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

func TestWorkers(t *testing.T) {
	inBubble(t, "the tasks of a worker that fell silent are rescued and its late result is refused",
		func(t *testing.T, s *shop) {
			silent := &cut{Store: s.store}
			mux, release := tusk.NewMux(), make(chan struct{})
			tusk.HandleFunc(mux, func(context.Context, count) error { <-release; return nil })
			victim, err := tusk.NewWorker(clientOf(t, silent), mux, &tusk.WorkerConfig{NeverLead: true})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan error)
			go func() { done <- victim.Run(ctx) }()
			id := s.enqueue(count{}, nil)
			s.await(id, tusk.StateRunning)
			silent.off.Store(true)

			tusk.HandleFunc(s.mux, func(context.Context, count) error { return nil })
			w, stop := s.work(nil)
			events, unsubscribe := w.Subscribe(tusk.EventRescued)
			task := s.await(id, tusk.StateCompleted)
			if task.Crashes != 0 || len(task.Detail.Attempts) < 2 || !strings.Contains(task.Detail.Attempts[0].Error, "died") {
				t.Errorf("%+v", task.Detail.Attempts)
			}
			if e := <-events; e.Task.ID != id {
				t.Errorf("%+v", e)
			}
			unsubscribe()
			if waited := task.FinishedAt.Sub(task.EnqueuedAt); waited > 40*time.Second {
				t.Errorf("rescue took %v", waited)
			}
			silent.off.Store(false)
			close(release)
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			if again := s.get(id); !again.FinishedAt.Equal(task.FinishedAt) {
				t.Error("the late result was accepted")
			}
			s.stop(stop)
		})
	inBubble(t, "a worker that cannot beat cancels its own handlers before the lease ends", func(t *testing.T, s *shop) {
		silent := &cut{Store: s.store}
		s.client = clientOf(t, silent)
		stopped := make(chan time.Time, 1)
		tusk.HandleFunc(s.mux, func(ctx context.Context, _ count) error {
			<-ctx.Done()
			if errors.Is(context.Cause(ctx), tusk.ErrLeaseLost) {
				stopped <- time.Now()
			}
			return ctx.Err()
		})
		_, stop := s.work(nil)
		id := s.enqueue(count{}, nil)
		s.await(id, tusk.StateRunning)
		silent.off.Store(true)
		begun := time.Now()
		if after := (<-stopped).Sub(begun); after > 20*time.Second {
			t.Errorf("cancelled after %v of a 30 s lease", after)
		}
		silent.off.Store(false)
		s.stop(stop)
	})
	inBubble(t, "cancelling a running task reaches its handler within a beat", func(t *testing.T, s *shop) {
		tusk.HandleFunc(s.mux, func(ctx context.Context, _ count) error { <-ctx.Done(); return context.Cause(ctx) })
		_, stop := s.work(nil)
		id := s.enqueue(count{}, nil)
		s.await(id, tusk.StateRunning)
		running, err := s.client.Cancel(context.Background(), id, "changed my mind")
		asked := time.Now()
		if err != nil || !running {
			t.Fatal(running, err)
		}
		s.await(id, tusk.StateCancelled)
		if took := time.Since(asked); took > 11*time.Second {
			t.Error(took)
		}
		s.stop(stop)
	})
	inBubble(t, "a shutdown hands back what has not begun and lets the rest end", func(t *testing.T, s *shop) {
		tusk.HandleFunc(s.mux, func(context.Context, count) error { time.Sleep(10 * time.Second); return nil })
		_, stop := s.work(&tusk.WorkerConfig{Concurrency: 2})
		var ids []tusk.ID
		for range 6 {
			ids = append(ids, s.enqueue(count{}, nil))
		}
		s.await(ids[0], tusk.StateRunning)
		s.stop(stop)
		states := map[tusk.State]int{}
		for _, id := range ids {
			task := s.get(id)
			states[task.State]++
			if task.State == tusk.StateAvailable && task.Attempt != 0 {
				t.Errorf("handed back with an attempt: %+v", task)
			}
		}
		if states[tusk.StateCompleted] != 2 || states[tusk.StateAvailable] != 4 {
			t.Error(states)
		}
		if workers, _ := s.client.Workers(context.Background()); len(workers) != 0 {
			t.Errorf("still signed on: %+v", workers)
		}
	})
	inBubble(t, "a handler that outstays the shutdown is stopped and its task handed back", func(t *testing.T, s *shop) {
		tusk.HandleFunc(s.mux, func(ctx context.Context, _ count) error { <-ctx.Done(); return ctx.Err() })
		_, stop := s.work(&tusk.WorkerConfig{ShutdownTimeout: 5 * time.Second})
		id := s.enqueue(count{}, nil)
		s.await(id, tusk.StateRunning)
		begun := time.Now()
		s.stop(stop)
		if task := s.get(id); task.State != tusk.StateAvailable || task.Attempt != 0 || time.Since(begun) > 7*time.Second {
			t.Errorf("%+v after %v", task, time.Since(begun))
		}
	})
	inBubble(t, "a handler that ignores its context is reported", func(t *testing.T, s *shop) {
		release := make(chan struct{})
		tusk.HandleFunc(s.mux, func(context.Context, count) error { <-release; return nil })
		_, stop := s.work(&tusk.WorkerConfig{ShutdownTimeout: time.Second})
		id := s.enqueue(count{}, nil)
		s.await(id, tusk.StateRunning)
		if err := stop(); err == nil || !strings.Contains(err.Error(), id.String()) {
			t.Error(err)
		}
		close(release)
	})
	inBubble(t, "no task is run twice by three workers, and all are run", func(t *testing.T, s *shop) {
		var runs sync.Map
		tusk.HandleFunc(s.mux, func(_ context.Context, a count) error {
			if _, twice := runs.LoadOrStore(a.N, true); twice {
				t.Errorf("task %d ran twice", a.N)
			}
			return nil
		})
		var stops []func() error
		for range 3 {
			_, stop := s.work(nil)
			stops = append(stops, stop)
		}
		const n = 3000
		tasks := make([]tusk.NewTask, n)
		for i := range tasks {
			tasks[i].Args = count{i}
		}
		if _, err := s.client.EnqueueMany(context.Background(), tasks); err != nil {
			t.Fatal(err)
		}
		for done := 0; done < n; time.Sleep(time.Second) {
			done = 0
			runs.Range(func(any, any) bool { done++; return true })
		}
		for _, stop := range stops {
			s.stop(stop)
		}
		if left, _ := s.client.Queues(context.Background()); len(left) != 1 || len(left[0].Tasks) != 0 {
			t.Errorf("%+v", left)
		}
	})
	inBubble(t, "claiming never sleeps while work waits", func(t *testing.T, s *shop) {
		const n = 20000
		var ran atomic.Int64
		tusk.HandleFunc(s.mux, func(context.Context, count) error { ran.Add(1); return nil })
		for range n / 5000 {
			if _, err := s.client.EnqueueMany(context.Background(),
				slices.Repeat([]tusk.NewTask{{Args: count{}}}, 5000)); err != nil {
				t.Fatal(err)
			}
		}
		begun := time.Now()
		_, stop := s.work(nil)
		for ran.Load() < n {
			time.Sleep(time.Millisecond)
		}
		if took := time.Since(begun); took > 500*time.Millisecond {
			t.Errorf("%v of waiting for %d tasks that were there", took, n)
		}
		s.stop(stop)
	})
	inBubble(t, "a paused queue rests and a resumed one goes on", func(t *testing.T, s *shop) {
		tusk.HandleFunc(s.mux, func(context.Context, count) error { return nil })
		ctx := context.Background()
		if err := s.client.PauseQueue(ctx, "default"); err != nil {
			t.Fatal(err)
		}
		_, stop := s.work(nil)
		id := s.enqueue(count{}, nil)
		time.Sleep(time.Minute)
		if task := s.get(id); task.State != tusk.StateAvailable {
			t.Error(task.State)
		}
		if q, _ := s.client.Queues(ctx); len(q) != 1 || !q[0].Paused || q[0].Tasks[tusk.StateAvailable] != 1 ||
			q[0].Oldest < 59*time.Second {
			t.Errorf("%+v", q)
		}
		if err := s.client.ResumeQueue(ctx, "default"); err != nil {
			t.Fatal(err)
		}
		s.await(id, tusk.StateCompleted)
		s.stop(stop)
	})
	inBubble(t, "a quiet worker ends what it runs, claims nothing more, and goes on when it is woken",
		func(t *testing.T, s *shop) {
			begun, end := make(chan bool), make(chan bool)
			tusk.HandleFunc(s.mux, func(context.Context, count) error { begun <- true; <-end; return nil })
			ctx := context.Background()
			w, stop := s.work(nil)
			running := s.enqueue(count{}, nil)
			<-begun
			if err := s.client.QuietWorker(ctx, w.ID()); err != nil {
				t.Fatal(err)
			}
			if all, err := s.client.Workers(ctx); err != nil || !all[0].Quiet || all[0].TakesFrom("default") {
				t.Error(all, err)
			}
			time.Sleep(2 * time.Second)
			id := s.enqueue(count{}, nil)
			end <- true
			s.await(running, tusk.StateCompleted)
			time.Sleep(time.Minute)
			if task := s.get(id); task.State != tusk.StateAvailable {
				t.Error(task.State)
			}
			if err := s.client.WakeWorker(ctx, w.ID()); err != nil {
				t.Fatal(err)
			}
			<-begun
			end <- true
			s.await(id, tusk.StateCompleted)
			if err := s.client.QuietWorker(ctx, tusk.NewID()); !errors.Is(err, tusk.ErrNotFound) {
				t.Error(err)
			}
			s.stop(stop)
		})
	inBubble(t, "every loop tells the age of its last success", func(t *testing.T, s *shop) {
		tusk.HandleFunc(s.mux, func(context.Context, count) error { return nil })
		w, stop := s.work(nil)
		time.Sleep(time.Minute)
		for name, age := range w.Health() {
			if age > 35*time.Second {
				t.Errorf("%s: %v", name, age)
			}
		}
		if !w.Leads() {
			t.Error("the only worker does not lead")
		}
		s.stop(stop)
	})
	inBubble(t, "a worker runs once", func(t *testing.T, s *shop) {
		tusk.HandleFunc(s.mux, func(context.Context, count) error { return nil })
		w, stop := s.work(nil)
		synctest.Wait()
		if err := w.Run(context.Background()); !errors.Is(err, tusk.ErrInvalid) {
			t.Error(err)
		}
		s.stop(stop)
		if err := w.Run(context.Background()); !errors.Is(err, tusk.ErrInvalid) {
			t.Error(err)
		}
	})
	inBubble(t, "slots that become free one by one are claimed for together", func(t *testing.T, s *shop) {
		const tasks, slots = 400, 40
		claims := &claimCounter{Store: s.store}
		mux := tusk.NewMux()
		var n atomic.Int64
		tusk.HandleFunc(mux, func(context.Context, count) error {
			time.Sleep(time.Duration(50+n.Add(1)*37%101) * time.Millisecond) // all end at different times
			return nil
		})
		ids := make([]tusk.ID, tasks)
		for i := range ids {
			ids[i] = s.enqueue(count{}, nil)
		}
		w, err := tusk.NewWorker(clientOf(t, claims), mux,
			&tusk.WorkerConfig{Concurrency: slots, ReadAhead: -1, NeverLead: true})
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error)
		go func() { done <- w.Run(ctx) }()
		for _, id := range ids {
			s.await(id, tusk.StateCompleted)
		}
		if took := time.Since(begun); took > 1300*time.Millisecond {
			t.Errorf("%d tasks of a tenth of a second took %v in %d slots: slots stood idle", tasks, took, slots)
		}
		if c := claims.some.Load(); c > tasks/2 {
			t.Errorf("%d claims for %d tasks", c, tasks)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	inBubble(t, "a hundred workers that start and stop at once leave nothing behind", func(t *testing.T, s *shop) {
		tusk.HandleFunc(s.mux, func(context.Context, count) error { return nil })
		id := s.enqueue(count{}, nil)
		var all sync.WaitGroup
		for range 100 {
			_, stop := s.work(nil)
			all.Go(func() {
				if err := stop(); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if task := s.get(id); task.State == tusk.StateRunning {
			t.Errorf("%+v", task)
		}
	})
}

// claimCounter counts the claims that bring tasks.
type claimCounter struct {
	store.Store
	some atomic.Int64
}

func (c *claimCounter) Claim(ctx context.Context, r store.ClaimRequest) ([]store.Task, error) {
	tasks, err := c.Store.Claim(ctx, r)
	if len(tasks) > 0 {
		c.some.Add(1)
	}
	return tasks, err
}
