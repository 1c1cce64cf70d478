package mysql_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/mysql"
	"github.com/tuskqueue/tusk/store/storetest"
)

func newTasks(n int, queue string) []store.NewTask {
	tasks := make([]store.NewTask, n)
	for i := range tasks {
		tasks[i] = store.NewTask{ID: storetest.NewID(), Kind: "mail", Queue: queue, Args: fmt.Appendf(nil, `{"n":%d}`, i)}
	}
	return tasks
}

// enqueue stores tasks.
func enqueue(t testing.TB, s store.Store, tasks ...store.NewTask) {
	t.Helper()
	if _, err := s.Enqueue(context.Background(), tasks); err != nil {
		t.Fatal(err)
	}
}

// startWorker registers a worker.
func startWorker(t testing.TB, s store.Store) store.ID {
	t.Helper()
	w := store.Worker{ID: storetest.NewID(), Host: "here", Queues: []string{"q"}}
	if _, err := s.Extend(context.Background(), store.Beat{Worker: w, TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	return w.ID
}

func claim(t testing.TB, s store.Store, worker store.ID, n int) []store.Task {
	t.Helper()
	tasks, err := s.Claim(context.Background(), store.ClaimRequest{Worker: worker, Queues: []string{"q"}, Limit: n,
		Token: store.NewToken()})
	if err != nil {
		t.Fatal(err)
	}
	return tasks
}

func completed(tasks []store.Task) []store.Outcome {
	outcomes := make([]store.Outcome, len(tasks))
	for i := range tasks {
		outcomes[i] = store.Outcome{Task: &tasks[i], State: store.Completed, Attempt: tasks[i].Attempt, Ran: time.Millisecond}
	}
	return outcomes
}

func finish(t testing.TB, s store.Store, tasks []store.Task) {
	t.Helper()
	if lost, err := s.Finish(context.Background(), completed(tasks)); err != nil || len(lost) > 0 {
		t.Fatal(lost, err)
	}
}

func lead(t testing.TB, s store.Store) int64 {
	t.Helper()
	l, err := s.Lead(context.Background(), store.Candidate{ID: storetest.NewID(), TTL: time.Hour})
	if err != nil || l.Term == 0 {
		t.Fatal(l, err)
	}
	return l.Term
}

// load is producers and workers that share what they were told.
type load struct {
	*testing.T
	store    *mysql.Store
	ctx      context.Context
	mu       sync.Mutex
	added    map[store.ID]bool
	maybe    map[store.ID]bool
	done     map[store.ID]int
	produced atomic.Bool
}

// run runs producers and workers until n tasks have been completed. It fails if an acknowledged task is not among them,
// or one is accepted twice.
func run(t *testing.T, s *mysql.Store, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	l := &load{T: t, store: s, ctx: ctx, added: map[store.ID]bool{}, maybe: map[store.ID]bool{}, done: map[store.ID]int{}}
	var producers, workers sync.WaitGroup
	for range 4 {
		producers.Go(func() { l.produce(n / 4) })
	}
	for range 3 {
		workers.Go(l.work)
	}
	producers.Wait()
	l.produced.Store(true)
	workers.Wait()
	for id := range l.added {
		if l.done[id] != 1 {
			t.Errorf("task %v was completed %d times", id, l.done[id])
		}
	}
	for id := range l.done {
		if !l.added[id] && !l.maybe[id] {
			t.Errorf("task %v was never stored, as its enqueue said", id)
		}
	}
	t.Logf("%d added, %d perhaps, %d completed", len(l.added), len(l.maybe), len(l.done))
}

// passing fails on errors that a sound program cannot expect.
func (l *load) passing(err error) {
	if err != nil && !errors.Is(err, store.ErrUnavailable) && !errors.Is(err, store.ErrNotCommitted) {
		l.Error(err)
	}
}

func (l *load) produce(n int) {
	for range n / 10 {
		tasks := newTasks(10, "q")
		_, err := l.store.Enqueue(l.ctx, tasks)
		l.passing(err)
		l.mu.Lock()
		for i := range tasks {
			switch {
			case err == nil:
				l.added[tasks[i].ID] = true
			case !errors.Is(err, store.ErrNotCommitted):
				l.maybe[tasks[i].ID] = true
			}
		}
		l.mu.Unlock()
	}
}

func (l *load) work() {
	w := store.Worker{ID: storetest.NewID()}
	beat := store.Beat{Worker: w, TTL: time.Hour}
	_, err := l.store.Extend(l.ctx, beat)
	for err != nil && l.ctx.Err() == nil {
		_, err = l.store.Extend(l.ctx, beat)
	}
	for empty := 0; empty < 3 && l.ctx.Err() == nil && !l.Failed(); {
		c := store.ClaimRequest{Worker: w.ID, Queues: []string{"q"}, Limit: 20, Token: store.NewToken()}
		tasks, err := l.store.Claim(l.ctx, c)
		unheard := err != nil // an empty repetition says nothing of what waits
		for c.Again = true; err != nil && l.ctx.Err() == nil; {
			l.passing(err)
			tasks, err = l.store.Claim(l.ctx, c)
		}
		if len(tasks) == 0 && !unheard && l.produced.Load() {
			empty++
		}
		l.finish(tasks)
	}
}

// finish repeats a finish whose answer was lost. Tasks that the repetition refuses may have been accepted before.
func (l *load) finish(tasks []store.Task) {
	outcomes := completed(tasks)
	unheard := false
	lost, err := l.store.Finish(l.ctx, outcomes)
	for err != nil && l.ctx.Err() == nil {
		l.passing(err)
		unheard = true
		lost, err = l.store.Finish(l.ctx, outcomes)
	}
	if len(lost) > 0 && !unheard {
		l.Errorf("%d finishes of open leases were lost", len(lost))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range tasks {
		l.done[tasks[i].ID]++
	}
}
