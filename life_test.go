package tusk_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

func TestDeadlines(t *testing.T) {
	inBubble(t, "the handler's context ends at the deadline, and the task is given up", func(t *testing.T, s *shop) {
		causes := make(chan error, 1)
		tusk.HandleFunc(s.mux, func(ctx context.Context, _ count) error {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return ctx.Err()
		}, tusk.WithTimeout(time.Hour))
		_, stop := s.work(nil)
		id := s.enqueue(count{}, &tusk.Options{DeadlineIn: time.Minute})
		task := s.await(id, tusk.StateDiscarded)
		if err := <-causes; !errors.Is(err, tusk.ErrDeadline) || !strings.Contains(task.Reason, "deadline") ||
			task.Detail.Attempts[0].Error == "" {
			t.Errorf("%v, %+v", err, task)
		}
		if late := task.FinishedAt.Sub(task.EnqueuedAt); late < time.Minute || late > time.Minute+time.Second {
			t.Errorf("ended after %v", late)
		}
		s.stop(stop)
	})
	inBubble(t, "a timeout that comes first is a failure like any other", func(t *testing.T, s *shop) {
		tusk.HandleFunc(s.mux, func(ctx context.Context, _ count) error { <-ctx.Done(); return ctx.Err() })
		_, stop := s.work(nil)
		id := s.enqueue(count{}, &tusk.Options{Deadline: time.Now().Add(time.Hour), Timeout: time.Second, MaxAttempts: 1})
		if task := s.await(id, tusk.StateDiscarded); !strings.Contains(task.Detail.Attempts[0].Error, "timed out") {
			t.Errorf("%+v", task.Detail.Attempts[0])
		}
		s.stop(stop)
	})
	inBubble(t, "a task that is late is not started, nor retried", func(t *testing.T, s *shop) {
		var ran atomic.Int32
		tusk.HandleFunc(s.mux, func(context.Context, count) error { ran.Add(1); return errors.New("x") })
		late := s.enqueue(count{}, &tusk.Options{DeadlineIn: time.Minute})
		if at := s.get(late).Deadline; !at.Equal(time.Now().Add(time.Minute).UTC()) {
			t.Errorf("deadline %v", at)
		}
		time.Sleep(time.Minute)
		_, stop := s.work(nil)
		if task := s.await(late, tusk.StateDiscarded); ran.Load() != 0 || task.Attempt != 0 ||
			task.Reason != "its deadline passed before it could start" {
			t.Errorf("ran %d times, %+v", ran.Load(), task)
		}
		again := s.enqueue(count{}, &tusk.Options{DeadlineIn: 10 * time.Second,
			Backoff: tusk.ConstantBackoff(4 * time.Second)})
		if task := s.await(again, tusk.StateDiscarded); ran.Load() != 3 || !strings.Contains(task.Reason, "deadline") {
			t.Errorf("ran %d times, %+v", ran.Load(), task)
		}
		s.stop(stop)
	})
}

func TestEphemeralTasks(t *testing.T) {
	ctx := context.Background()
	inBubble(t, "leave nothing but statistics when they complete, and everything when they fail",
		func(t *testing.T, s *shop) {
			tusk.HandleFunc(s.mux, func(_ context.Context, c count) error {
				if c.N == 1 {
					return tusk.Discard(errors.New("x"))
				}
				return nil
			})
			well := s.enqueue(count{0}, &tusk.Options{Ephemeral: true, Key: "k"})
			ill := s.enqueue(count{1}, &tusk.Options{Ephemeral: true})
			_, stop := s.work(nil)
			s.drain()
			s.stop(stop)
			if _, err := s.client.Get(ctx, well); !errors.Is(err, tusk.ErrNotFound) {
				t.Errorf("it was kept: %v", err)
			}
			if task := s.get(ill); task.State != tusk.StateDiscarded || !task.Ephemeral {
				t.Errorf("%+v", task)
			}
			stats, err := s.client.Stats(ctx, store.StatsFilter{Bucket: time.Hour, Until: time.Now().Add(time.Hour)})
			if err != nil || len(stats) != 1 || stats[0].Completed != 1 || stats[0].Discarded != 1 {
				t.Errorf("%+v, %v", stats, err)
			}
			if r, err := s.client.Enqueue(ctx, count{0}, &tusk.Options{Key: "k"}); err != nil || r.Result != tusk.Added {
				t.Errorf("%+v, %v", r, err)
			}
		})
	inBubble(t, "of a workflow are kept", func(t *testing.T, s *shop) {
		tusk.HandleFunc(s.mux, func(context.Context, count) error { return nil })
		w := tusk.NewWorkflow()
		parent := w.Task("a", count{}, &tusk.Options{Ephemeral: true})
		w.Task("b", count{}, nil).After(parent)
		run, err := s.client.EnqueueWorkflow(ctx, w)
		if err != nil {
			t.Fatal(err)
		}
		_, stop := s.work(nil)
		s.await(run.Tasks["b"], tusk.StateCompleted)
		s.await(run.Tasks["a"], tusk.StateCompleted)
		s.stop(stop)
	})
	inBubble(t, "do not rerun", func(t *testing.T, s *shop) {
		_, err := s.client.Enqueue(ctx, count{}, &tusk.Options{Ephemeral: true, Key: "k", OnConflict: tusk.Rerun})
		if !errors.Is(err, tusk.ErrInvalid) {
			t.Error(err)
		}
	})
}

// dying is a store whose worker dies: its heartbeats stop.
type dying struct {
	store.Store
	dead atomic.Bool
}

func (d *dying) Extend(ctx context.Context, b store.Beat) ([]store.Stop, error) {
	if d.dead.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return d.Store.Extend(ctx, b)
}

func (d *dying) Finish(ctx context.Context, o []store.Outcome) ([]store.ID, error) {
	if d.dead.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return d.Store.Finish(ctx, o)
}

func (d *dying) PutRecord(ctx context.Context, p store.PutRecord) (int64, []store.Enqueued, error) {
	if d.dead.Load() {
		<-ctx.Done()
		return 0, nil, ctx.Err()
	}
	return d.Store.PutRecord(ctx, p)
}

func TestQuarantine(t *testing.T) {
	// crash lets a worker with one slot claim everything, begin one task and die.
	crash := func(s *shop) {
		s.t.Helper()
		grave := &dying{Store: s.store}
		mux, begun := tusk.NewMux(), make(chan struct{}, 100)
		tusk.HandleFunc(mux, func(ctx context.Context, _ count) error {
			begun <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		})
		w, err := tusk.NewWorker(clientOf(s.t, grave), mux,
			&tusk.WorkerConfig{Concurrency: 1, NeverLead: true, Lease: 3 * time.Second, ShutdownTimeout: time.Second})
		if err != nil {
			s.t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { _ = w.Run(ctx); close(done) }()
		<-begun
		grave.dead.Store(true)
		time.Sleep(10 * time.Second) // the leader rescues
		cancel()
		<-done
	}
	inBubble(t, "a task that kills its workers is put away", func(t *testing.T, s *shop) {
		tusk.HandleKind(s.mux, "other", func(context.Context, *tusk.Task[struct{}]) error { return nil })
		_, stop := s.work(&tusk.WorkerConfig{Queues: []string{"other"}})
		poison := s.enqueue(count{1}, &tusk.Options{Priority: -1})
		for n := range 3 {
			crash(s)
			if task := s.get(poison); task.Crashes != n+1 {
				t.Fatalf("%d crashes after %d: %v", task.Crashes, n+1, task.State)
			}
		}
		task := s.get(poison)
		if task.State != tusk.StateDiscarded || !strings.HasPrefix(task.Reason, "quarantined") {
			t.Errorf("%v %q", task.State, task.Reason)
		}
		s.stop(stop)
	})
	inBubble(t, "a task that runs beside one that kills its workers is not put away with it",
		func(t *testing.T, s *shop) {
			tusk.HandleKind(s.mux, "other", func(context.Context, *tusk.Task[struct{}]) error { return nil })
			_, stop := s.work(&tusk.WorkerConfig{Queues: []string{"other"}})
			poison, innocent := s.enqueue(count{1}, nil), s.enqueue(count{2}, nil)
			for range 5 {
				grave := &dying{Store: s.store}
				mux := tusk.NewMux()
				tusk.HandleFunc(mux, func(ctx context.Context, c count) error {
					if c.N == 1 {
						time.Sleep(time.Second)
						grave.dead.Store(true)
						<-ctx.Done()
						return ctx.Err()
					}
					time.Sleep(2 * time.Second)
					return nil
				})
				w, err := tusk.NewWorker(clientOf(t, grave), mux, &tusk.WorkerConfig{Concurrency: 10, NeverLead: true,
					Lease: 3 * time.Second, ShutdownTimeout: time.Second})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(context.Background())
				done := make(chan struct{})
				go func() { _ = w.Run(ctx); close(done) }()
				time.Sleep(15 * time.Second) // the leader rescues
				cancel()
				<-done
			}
			if task := s.get(poison); task.State != tusk.StateDiscarded || !strings.HasPrefix(task.Reason, "quarantined") {
				t.Errorf("the one that kills: %v %q", task.State, task.Reason)
			}
			if task := s.get(innocent); task.State != tusk.StateCompleted {
				t.Errorf("the one beside it: %v %q, %d crashes", task.State, task.Reason, task.Crashes)
			}
			s.stop(stop)
		})
	inBubble(t, "crashes while a suspect waits in a worker are not held against it", func(t *testing.T, s *shop) {
		tusk.HandleKind(s.mux, "other", func(context.Context, *tusk.Task[struct{}]) error { return nil })
		_, stop := s.work(&tusk.WorkerConfig{Queues: []string{"other"}})
		innocent := s.enqueue(count{2}, nil)
		for range 5 { // claimed but never begun
			w := store.Worker{ID: tusk.NewID(), Queues: []string{"default"}}
			if _, err := s.store.Extend(context.Background(), store.Beat{Worker: w, TTL: time.Second}); err != nil {
				t.Fatal(err)
			}
			tasks, err := s.store.Claim(context.Background(), store.ClaimRequest{Worker: w.ID, Queues: []string{"default"},
				Limit: 10, Token: store.NewToken()})
			if err != nil || len(tasks) != 1 {
				t.Fatal(len(tasks), err)
			}
			time.Sleep(10 * time.Second)
		}
		if task := s.get(innocent); task.State != tusk.StateAvailable || task.Crashes != 1 {
			t.Errorf("%v, %d crashes", task.State, task.Crashes)
		}
		s.stop(stop)
	})
	inBubble(t, "what was noted of suspects is deleted by the worker, or by the leader in the end",
		func(t *testing.T, s *shop) {
			suspects := func() int {
				records, err := s.store.Records(context.Background(), store.RecordFilter{Kind: "suspects"})
				if err != nil {
					t.Fatal(err)
				}
				return len(records)
			}
			tusk.HandleFunc(s.mux, func(context.Context, count) error { return nil })
			_, stop := s.work(&tusk.WorkerConfig{Queues: []string{"other"}})
			s.enqueue(count{3}, nil)
			crash(s)
			crash(s)
			if suspects() == 0 {
				t.Error("nothing was noted")
			}
			time.Sleep(10 * time.Minute)
			if n := suspects(); n != 0 {
				t.Errorf("%d records are left", n)
			}
			_, stopOther := s.work(&tusk.WorkerConfig{NeverLead: true})
			s.drain()
			if suspects() != 1 {
				t.Errorf("%d records of a worker that lives", suspects())
			}
			s.stop(stopOther)
			if n := suspects(); n != 0 {
				t.Errorf("%d records are left", n)
			}
			s.stop(stop)
		})
}

func ExampleOptions_deadline() {
	ctx, client := context.Background(), newClient()
	r, _ := client.Enqueue(ctx, Greet{Name: "Ada"}, &tusk.Options{DeadlineIn: time.Hour})
	task, _ := client.Get(ctx, r.ID)
	fmt.Println(task.Deadline.Sub(task.EnqueuedAt))
	// Output: 1h0m0s
}

func ExampleOptions_ephemeral() {
	ctx, client := context.Background(), newClient()
	mux := tusk.NewMux()
	done := make(chan struct{})
	tusk.HandleFunc(mux, func(context.Context, Greet) error { close(done); return nil })
	r, _ := client.Enqueue(ctx, Greet{Name: "Ada"}, &tusk.Options{Ephemeral: true})
	worker, _ := tusk.NewWorker(client, mux, nil)
	run, stop := context.WithCancel(ctx)
	go func() { <-done; stop() }()
	_ = worker.Run(run)
	_, err := client.Get(ctx, r.ID)
	fmt.Println(errors.Is(err, tusk.ErrNotFound))
	// Output: true
}

func TestAging(t *testing.T) {
	ctx := context.Background()
	// flood keeps urgent tasks coming, more than a worker can run.
	flood := func(s *shop, for_ time.Duration) {
		for range int(for_ / time.Second) {
			for range 3 {
				s.enqueue(count{-1}, nil)
			}
			time.Sleep(time.Second)
		}
	}
	for _, limited := range []bool{false, true} {
		inBubble(t, fmt.Sprintf("a task does not starve behind urgent ones, in turns: %v", limited),
			func(t *testing.T, s *shop) {
				tusk.HandleFunc(s.mux, func(context.Context, count) error { time.Sleep(time.Second); return nil })
				if limited {
					s.limit(tusk.Limits{Concurrency: 1})
				}
				for range 50 {
					s.enqueue(count{-1}, nil)
				}
				starved := s.enqueue(count{1}, &tusk.Options{Priority: 100})
				_, stop := s.work(&tusk.WorkerConfig{Concurrency: 1})
				flood(s, 2*time.Minute)
				if got := s.get(starved); got.Attempt != 0 || got.Priority != 100 {
					t.Fatalf("it does not starve: %v at %d", got.State, got.Priority)
				}
				if err := s.client.SetAging(ctx, "default", tusk.Aging{Every: time.Minute}); err != nil {
					t.Fatal(err)
				}
				flood(s, 2*time.Minute)
				if got := s.get(starved); got.Priority > 50 || got.Priority < 12 {
					t.Errorf("at %d after two minutes", got.Priority)
				}
				flood(s, 8*time.Minute)
				if got := s.get(starved); got.Priority != 0 {
					t.Errorf("at %d after ten minutes", got.Priority)
				}
				if q, err := s.client.Queues(ctx); err != nil || q[0].Aging.Every != time.Minute {
					t.Errorf("%+v, %v", q, err)
				}
				s.drain()
				s.stop(stop)
			})
	}
	inBubble(t, "every waiting task rises once in a sweep, however many there are", func(t *testing.T, s *shop) {
		tusk.HandleKind(s.mux, "other", func(context.Context, *tusk.Task[struct{}]) error { return nil })
		_, stop := s.work(&tusk.WorkerConfig{Queues: []string{"other"}})
		tasks := make([]tusk.NewTask, 2500)
		for i := range tasks {
			tasks[i] = tusk.NewTask{Args: count{i}, Options: &tusk.Options{Priority: 8, Tags: []string{"all"}}}
		}
		if _, err := s.client.EnqueueMany(ctx, tasks); err != nil {
			t.Fatal(err)
		}
		floor := s.enqueue(count{0}, &tusk.Options{Priority: -8})
		if err := s.client.SetAging(ctx, "default", tusk.Aging{Every: time.Hour, To: -4}); err != nil {
			t.Fatal(err)
		}
		at := map[int16]int{}
		time.Sleep(90 * time.Minute)
		for before := (tusk.ID{}); ; {
			page, err := s.client.List(ctx, tusk.Filter{Tags: []string{"all"}, Limit: 1000, Before: before})
			if err != nil {
				t.Fatal(err)
			}
			for _, task := range page {
				at[task.Priority]++
				before = task.ID
			}
			if len(page) < 1000 {
				break
			}
		}
		if at[2] != 2500 || s.get(floor).Priority != -8 {
			t.Errorf("%v, and %d", at, s.get(floor).Priority)
		}
		s.stop(stop)
	})
	inBubble(t, "bad aging is refused", func(t *testing.T, s *shop) {
		if err := s.client.SetAging(ctx, "q", tusk.Aging{Every: time.Millisecond}); !errors.Is(err, tusk.ErrInvalid) {
			t.Error(err)
		}
	})
}

func TestRetentionOfQueues(t *testing.T) {
	ctx := context.Background()
	inBubble(t, "what a queue has set comes before what the leader was told", func(t *testing.T, s *shop) {
		tusk.HandleFunc(s.mux, func(context.Context, count) error { return nil })
		set := func(queue string, r tusk.QueueRetention) {
			t.Helper()
			if err := s.client.SetRetention(ctx, queue, r); err != nil {
				t.Fatal(err)
			}
		}
		set("brief", tusk.QueueRetention{Completed: time.Minute})
		set("audit", tusk.QueueRetention{Completed: tusk.Forever})
		queues := []string{"default", "brief", "audit"}
		_, stop := s.work(&tusk.WorkerConfig{Queues: queues, Retention: tusk.Retention{Completed: time.Hour}})
		ids := map[string]tusk.ID{}
		for _, q := range queues {
			ids[q] = s.enqueue(count{1}, &tusk.Options{Queue: q})
			s.await(ids[q], tusk.StateCompleted)
		}
		kept := func(q string) bool {
			_, err := s.client.Get(ctx, ids[q])
			return err == nil
		}
		time.Sleep(3 * time.Minute)
		if kept("brief") || !kept("default") || !kept("audit") {
			t.Error("after minutes, want all but that of the queue that keeps for one:", kept("brief"), kept("default"),
				kept("audit"))
		}
		time.Sleep(2 * time.Hour)
		if kept("default") || !kept("audit") {
			t.Error("after hours, want that of the queue that keeps for ever:", kept("default"), kept("audit"))
		}
		set("audit", tusk.QueueRetention{})
		time.Sleep(2 * time.Minute)
		if kept("audit") {
			t.Error("it is kept for ever though that is not set any more")
		}
		s.stop(stop)
	})
	inBubble(t, "a bad retention is refused", func(t *testing.T, s *shop) {
		for _, bad := range []time.Duration{time.Millisecond, -time.Hour} {
			if err := s.client.SetRetention(ctx, "q", tusk.QueueRetention{Discarded: bad}); !errors.Is(err, tusk.ErrInvalid) {
				t.Error(bad, err)
			}
		}
	})
}

func ExampleClient_SetRetention() {
	ctx, client := context.Background(), newClient()
	_ = client.SetRetention(ctx, "audit", tusk.QueueRetention{Completed: tusk.Forever, Discarded: tusk.Forever})
	_ = client.SetRetention(ctx, "thumbnails", tusk.QueueRetention{Completed: 10 * time.Minute})
	queues, _ := client.Queues(ctx)
	fmt.Println(queues[1].Name, queues[1].Retention.Completed)
	// Output: thumbnails 10m0s
}

func ExampleClient_SetAging() {
	ctx, client := context.Background(), newClient()
	// Tasks with the priority 10 are as urgent as those with 0 after 20 minutes.
	_ = client.SetAging(ctx, "default", tusk.Aging{Every: 5 * time.Minute})
	queues, _ := client.Queues(ctx)
	fmt.Println(queues[0].Name, queues[0].Aging.Every)
	// Output: default 5m0s
}
